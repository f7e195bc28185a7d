package httpapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/operations"
)

// Problem is an error of the HTTP API: application/problem+json of RFC 9457.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Cause is a machine-readable reason why the API server refuses a request that the caller has the right to. See the
	// Cause constants.
	Cause string `json:"cause,omitempty"`
	// OperationID is the operation that blocks the request.
	OperationID string `json:"operationID,omitempty"`
	// Running is the view of that operation.
	Running *operations.View `json:"running,omitempty"`
	// Fields lists the problems of the request.
	Fields []operations.FieldError `json:"fields,omitempty"`

	after int // Retry-After, in seconds
}

// Error returns title and detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

// HTTPStatus returns the status. By it, a console recognizes the Problem of an Authorizer.
func (p *Problem) HTTPStatus() int { return p.Status }

// problemFrom returns the Problem of an access that is refused.
func problemFrom(p *access.Problem) *Problem {
	return &Problem{Status: p.Status, Title: p.Title, Detail: p.Detail}
}

func (p *Problem) write(w http.ResponseWriter) {
	write(w, p.Status, "application/problem+json", p)
}

// answerProblem answers with the problem for err. It adds Retry-After to 429 and 503. It returns the status.
func answerProblem(w http.ResponseWriter, err error) (status int) {
	p := problemOf(err)
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		after, suggested := apierrors.SuggestsClientDelay(err)
		if !suggested {
			after = p.after
		}
		w.Header().Set("Retry-After", strconv.Itoa(min(max(after, 1), maxRetryAfter)))
	}
	p.write(w)
	return p.Status
}

// maxRetryAfter bounds the Retry-After, in seconds, that the API server can impose on callers.
const maxRetryAfter = 300

// faults collects the problems of one request, so that one answer lists them all.
type faults struct {
	title  string
	status int
	fields []operations.FieldError
}

const (
	invalidTitle = "Invalid operation"
	severalTitle = "Several things are wrong with the request"

	titleInProgress = "Another operation is in progress"

	// maxFaults bounds the problems in one answer, and maxName the bytes of a name that the caller has chosen.
	maxFaults, maxName = 100, 128
)

// add adds problems. Problems with different statuses result in 400.
func (f *faults) add(status int, title string, fields ...operations.FieldError) {
	switch {
	case len(fields) == 0:
		return
	case len(f.fields) == 0:
		f.status, f.title = status, title
	default:
		if f.title != title {
			f.title = severalTitle
		}
		if f.status != status {
			f.status = http.StatusBadRequest
		}
	}
	f.fields = append(f.fields, fields...)
}

// parameter adds a problem of a query parameter.
func (f *faults) parameter(name, problem string) {
	f.add(http.StatusBadRequest, "Bad query", operations.FieldError{Field: "query " + name, Problem: problem})
}

// parameters adds the query parameters that are unknown or repeated. An unknown one is refused, because a misspelled
// filter would otherwise select everything.
func (f *faults) parameters(query url.Values, known []string) {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(known, name):
			f.parameter(strconv.Quote(short(name, maxName)), "is unknown; known are "+strings.Join(known, ", "))
		case len(query[name]) > 1:
			f.parameter(name, "is given more than once")
		}
	}
}

// problem returns all problems as one error, or nil.
func (f *faults) problem() error {
	if len(f.fields) == 0 {
		return nil
	}
	return fieldProblem(f.status, f.title, f.fields)
}

// fieldProblem returns a problem with at most maxFaults fields.
func fieldProblem(status int, title string, fields []operations.FieldError) *Problem {
	shown := fields[:min(len(fields), maxFaults)]
	all := make([]string, len(shown))
	for i, f := range shown {
		all[i] = f.Field + " " + f.Problem
	}
	if more := len(fields) - len(shown); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return &Problem{Status: status, Title: title, Detail: strings.Join(all, "; "), Fields: shown}
}

// problemOf converts an error to a Problem. Errors of package operations keep their meaning. Others become 502.
func problemOf(err error) *Problem {
	var (
		p       *Problem
		denied  *access.Problem
		invalid *operations.InvalidError
		running *operations.InProgressError
		large   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &denied):
		return problemFrom(denied)
	case errors.As(err, &invalid):
		return fieldProblem(http.StatusUnprocessableEntity, invalidTitle, invalid.Fields)
	case errors.As(err, &running):
		v := operations.ViewOf(running.Running)
		return &Problem{
			Status: http.StatusConflict, Title: titleInProgress, Detail: running.Error() + "; wait for its end or cancel it",
			OperationID: v.OperationID, Running: &v,
		}
	case errors.Is(err, operations.ErrIDReused):
		return &Problem{
			Status: http.StatusUnprocessableEntity, Title: "Operation id reused",
			Detail: "this Idempotency-Key belongs to a request with other content: use a new key",
		}
	case errors.Is(err, operations.ErrNotFound):
		return &Problem{Status: http.StatusNotFound, Title: "Operation not found", Detail: err.Error()}
	case errors.Is(err, operations.ErrEnded):
		return &Problem{
			Status: http.StatusConflict, Title: "The operation has ended",
			Detail: "there is nothing left to cancel",
		}
	case errors.As(err, &large):
		return &Problem{
			Status: http.StatusRequestEntityTooLarge, Title: "Body too large",
			Detail: fmt.Sprintf("send at most %d KiB", large.Limit>>10),
		}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return &Problem{
			Status: http.StatusUnprocessableEntity, Title: "Refused by the API server", Detail: err.Error(),
			Fields: causes(err),
		}
	case apierrors.IsNotFound(err): // a namespace; a missing operation is ErrNotFound
		return &Problem{Status: http.StatusNotFound, Title: "Not Found", Detail: err.Error()}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &Problem{
			Status: http.StatusServiceUnavailable, Title: "Too many requests for this resource",
			Detail: "try again; the same Idempotency-Key runs nothing twice",
		}
	case apierrors.IsTooManyRequests(err):
		return &Problem{
			Status: http.StatusServiceUnavailable, Title: "The API server has too many requests",
			Detail: "try again later; the same Idempotency-Key runs nothing twice",
		}
	case apierrors.IsServiceUnavailable(err), apierrors.IsServerTimeout(err):
		return &Problem{
			Status: http.StatusServiceUnavailable, Title: "The API server is not available",
			Detail: "try again later; the same Idempotency-Key runs nothing twice",
		}
	case apierrors.IsForbidden(err):
		return refused(err)
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err):
		return &Problem{
			Status: http.StatusGatewayTimeout, Title: "Took too long",
			Detail: "try again; the same Idempotency-Key runs nothing twice",
		}
	default:
		return &Problem{Status: http.StatusBadGateway, Title: "The API server did not answer well", Detail: err.Error()}
	}
}

// causes returns the fields that the API server names in an error.
func causes(err error) (fields []operations.FieldError) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	for _, c := range status.Status().Details.Causes {
		fields = append(fields, operations.FieldError{Field: c.Field, Problem: c.Message})
	}
	return fields
}
