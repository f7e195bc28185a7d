package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations"
)

// CallbackSink accepts the outcomes that receivers report.
type CallbackSink interface {
	// Owner returns the namespace of the operation for which a token was issued. It must not send requests, because it
	// runs for every unauthenticated request. Error: [operations.ErrUnknownCallback] for a token that was not issued
	// here.
	Owner(token string) (namespace string, err error)
	// Take records the outcome before it returns. Errors: [operations.ErrUnknownCallback] for a token that identifies
	// no call, [operations.ErrCallbackUsed] if the outcome is known already.
	Take(ctx context.Context, token string, succeeded bool, message string) error
}

const (
	// callbackBody bounds the time to read the body of a callback.
	callbackBody = 5 * time.Second
	// maxCallbackToken bounds the tokens that are parsed. The longest valid token has less than half of it.
	maxCallbackToken = 4 << 10
)

// callbacks passes outcomes to the sink. Its only state is in spent.
type callbacks struct {
	sink    CallbackSink // nil: every callback is unknown
	spent   *spent
	slots   *limit
	timeout time.Duration
}

// serve reads no body and takes no slot before the token is verified.
func (c *callbacks) serve(w http.ResponseWriter, r *http.Request) error {
	unknown := &Problem{
		Status: http.StatusNotFound, Title: "Unknown callback",
		Detail: "use the URL exactly as it was sent",
	}
	token := r.PathValue("token")
	if c.sink == nil || len(token) > maxCallbackToken {
		return unknown
	}
	namespace, err := c.sink.Owner(token)
	if err != nil {
		return unknown
	}
	serve.Known(r.Context())
	if err := c.spent.get(token); err != nil {
		return callbackProblem(err, unknown)
	}
	ctx, cancel := context.WithTimeout(r.Context(), c.timeout)
	defer cancel()
	leave, err := c.slots.enter(ctx, fair.Party{Group: namespace})
	if err != nil {
		return err
	}
	defer leave()
	// Fails only with some test servers.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(min(callbackBody, c.timeout)))
	r.Body = http.MaxBytesReader(w, r.Body, maxCallback)
	succeeded, message, err := readCallback(w, r)
	if err != nil {
		return err
	}
	if err := c.sink.Take(ctx, token, succeeded, message); err != nil {
		c.spent.put(token, namespace, err)
		return callbackProblem(err, unknown)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func callbackProblem(err error, unknown *Problem) error {
	switch {
	case errors.Is(err, operations.ErrUnknownCallback):
		return unknown
	case errors.Is(err, operations.ErrCallbackUsed):
		return &Problem{
			Status: http.StatusConflict, Title: "Used already",
			Detail: "the outcome of this call is already recorded",
		}
	default:
		return err
	}
}

// readCallback reads the outcome from the body.
func readCallback(w http.ResponseWriter, r *http.Request) (succeeded bool, message string, err error) {
	var body struct {
		Status string `json:"status"`
		Error  string `json:"error"`
	}
	raw, err := readBody(w, r)
	if err != nil {
		return false, "", err
	}
	var wrong faults
	_ = json.Unmarshal(raw, &body) // misshapen reports the errors; other members belong to the receiver
	for _, f := range misshapen("callback", raw, reflect.TypeOf(body)) {
		if f.Field == "callback.status" || f.Field == "callback.error" {
			wrong.add(http.StatusBadRequest, "Body cannot be read", f)
		}
	}
	status := strings.ToUpper(body.Status)
	reported := slices.ContainsFunc(wrong.fields, func(f operations.FieldError) bool {
		return f.Field == "callback.status"
	})
	if status != "SUCCEEDED" && status != "FAILED" && !reported {
		wrong.add(http.StatusBadRequest, "Unknown status", operations.FieldError{
			Field:   "callback.status",
			Problem: "must be SUCCEEDED, or FAILED with an error: {\"status\": \"FAILED\", \"error\": \"…\"}",
		})
	}
	// As in other answers, a success with an error text is a failure.
	return status == "SUCCEEDED" && body.Error == "", body.Error, wrong.problem()
}

// spent remembers unsuccessful callbacks, so that a repetition does not reach the CallbackSink.
type spent struct {
	mu   sync.Mutex
	seen *fair.Cache[[sha256.Size]byte, verdict]
}

// maxSpent bounds the number of remembered callbacks; keepUsed and keepUnknown bound the time. A used callback stays
// used, but an unknown one may become known.
const (
	maxSpent    = 4096
	keepUsed    = 10 * time.Minute
	keepUnknown = 5 * time.Second
)

// verdict is a remembered error.
type verdict struct {
	err   error
	until time.Time
}

func newSpent() *spent { return &spent{seen: fair.NewCache[[sha256.Size]byte, verdict](maxSpent)} }

// get returns the remembered error for a token, or nil.
func (s *spent) get(token string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.seen.Get(sha256.Sum256([]byte(token)))
	if !ok || time.Now().After(v.until) {
		return nil
	}
	return v.err
}

func (s *spent) put(token, namespace string, err error) {
	keep := keepUsed
	switch {
	case errors.Is(err, operations.ErrCallbackUsed):
		err = operations.ErrCallbackUsed
	case errors.Is(err, operations.ErrUnknownCallback):
		err, keep = operations.ErrUnknownCallback, keepUnknown
	default:
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Put(sha256.Sum256([]byte(token)), namespace, verdict{err, time.Now().Add(keep)})
}
