package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/operation"
)

// Problem is an error as the HTTP API shows it: application/problem+json of RFC 9457.
type Problem struct {
	Type   string `json:"type,omitempty"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// OperationID is the operation that stands in the way.
	OperationID string `json:"operationID,omitempty"`
	// Running is where that operation is shown.
	Running *operation.View `json:"running,omitempty"`
	// Fields are what is wrong with a request.
	Fields []operation.FieldError `json:"fields,omitempty"`
}

// Error returns title and detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}

func (p *Problem) write(w http.ResponseWriter) {
	write(w, p.Status, "application/problem+json", p)
}

// answerProblem answers with what an error means, and when it is worth trying again where that is all that helps. It returns the
// status.
func answerProblem(w http.ResponseWriter, err error) (status int) {
	p := problemOf(err)
	if p.Status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		after, told := apierrors.SuggestsClientDelay(err)
		if !told {
			after = 1
		}
		w.Header().Set("Retry-After", strconv.Itoa(min(max(after, 1), maxRetryAfter)))
	}
	p.write(w)
	return p.Status
}

// maxRetryAfter bounds, in seconds, for how long callers are sent away because the API server says so.
const maxRetryAfter = 300

// ProblemOf returns an error as a problem. Errors of package operation keep their meaning; others are internal.
func ProblemOf(err error) *Problem { return problemOf(err) }

func problemOf(err error) *Problem {
	var (
		p       *Problem
		invalid *operation.InvalidError
		running *operation.InProgressError
		large   *http.MaxBytesError
	)
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &invalid):
		return &Problem{Status: http.StatusUnprocessableEntity, Title: "Invalid operation", Detail: "change the fields that are named", Fields: invalid.Fields}
	case errors.As(err, &running):
		v := operation.ViewOf(running.Running)
		return &Problem{
			Status: http.StatusConflict, Title: "Another operation is in progress", Detail: running.Error() + "; wait for its end or cancel it",
			OperationID: v.OperationID, Running: &v,
		}
	case errors.Is(err, operation.ErrIDReused):
		return &Problem{
			Status: http.StatusUnprocessableEntity, Title: "Operation id reused",
			Detail: "this Idempotency-Key belongs to a request with other content: use a new key",
		}
	case errors.Is(err, operation.ErrNotFound):
		return &Problem{Status: http.StatusNotFound, Title: "Operation not found", Detail: err.Error()}
	case errors.Is(err, operation.ErrEnded):
		return &Problem{Status: http.StatusConflict, Title: "The operation has ended", Detail: "there is nothing left to cancel"}
	case errors.As(err, &large):
		return &Problem{Status: http.StatusRequestEntityTooLarge, Title: "Body too large", Detail: "send at most 512 KiB"}
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return &Problem{Status: http.StatusUnprocessableEntity, Title: "Refused by the API server", Detail: err.Error()}
	case apierrors.IsNotFound(err): // a namespace; an operation is ErrNotFound
		return &Problem{Status: http.StatusNotFound, Title: "Not Found", Detail: err.Error()}
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return &Problem{Status: http.StatusServiceUnavailable, Title: "Too many requests for this resource", Detail: "try again; the same Idempotency-Key runs nothing twice"}
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
		return &Problem{Status: http.StatusForbidden, Title: "Forbidden", Detail: "the server itself lacks the right: " + err.Error()}
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err):
		return &Problem{Status: http.StatusGatewayTimeout, Title: "Took too long", Detail: "try again; the same Idempotency-Key runs nothing twice"}
	default:
		return &Problem{Status: http.StatusBadGateway, Title: "The API server did not answer well", Detail: err.Error()}
	}
}
