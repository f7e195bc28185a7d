package operations

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// Begin starts a slow request in the API service. Within its own transaction it checks the request, marks the resource
// as not ready and enqueues the returned Request (package outbox). The operation is then scheduled with the commit and
// never before it. A service without an outbox commits first and then calls Schedule.
//
// id is the operation id of this request, and Request.ID must be equal to it. The middleware answers an error with a
// status: [ErrInProgress] with 409, and an error that has a method HTTPStatus() int with that status. An API server
// that throttles or is unavailable gives 503 with Retry-After, a deadline gives 504, and any other error gives 500.
// After 503, 504 and 500 the operation may have started nevertheless. The caller finds out by repeating the request
// with the same Idempotency-Key.
type Begin func(ctx context.Context, r *http.Request, id string) (Request, error)

// AsyncOptions configures the middleware. Scheduler is required.
type AsyncOptions struct {
	// Scheduler reads the state of operations.
	Scheduler *Scheduler
	// Location returns the URL of the operation of a resource. Default: [Resource.Path].
	Location func(Resource) string
	// WaitAtMost bounds how long a request without Prefer: respond-async waits for its operation to end. Default: 30 s.
	WaitAtMost time.Duration
	// Logger receives one line per failed request. Default: discarded.
	Logger *slog.Logger
}

// Async returns a handler that begins an operation and answers by RFC 7240:
//
//   - Prefer: respond-async: 202 at once, with Location and Preference-Applied;
//   - Prefer: wait=N, with or without respond-async: 200 with the outcome if the operation ends within N seconds, else
//     202;
//   - neither: as wait, up to WaitAtMost.
//
// A failed operation is answered with 200 too: the request for its state succeeded, and the body holds the state. The
// header Operation-Status repeats the state. The header Idempotency-Key, if sent, becomes the operation id. If the
// operation with that id has ended already, every answer carries its outcome.
//
// If the context of the request has no span, begin gets the trace of the caller from the W3C Trace Context headers. See
// [Scheduler.Schedule].
func Async(o AsyncOptions, begin Begin) http.Handler {
	if o.Location == nil {
		o.Location = Resource.Path
	}
	if o.WaitAtMost <= 0 {
		o.WaitAtMost = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &async{AsyncOptions: o, begin: begin}
}

type async struct {
	AsyncOptions
	begin Begin
}

// ServeHTTP implements http.Handler.
func (a *async) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if ctx := tracing.Incoming(r.Context(), r.Header); ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	respondAsync, waits, wait := preferences(r.Header.Values("Prefer"), a.WaitAtMost)
	id := r.Header.Get("Idempotency-Key")
	repeats := id != ""
	if !repeats {
		id = uuid.NewString()
	} else if !isOperationID(id) { // refused before begin runs, with a precise error
		a.refuse(w, r, &InvalidError{Fields: []FieldError{{"Idempotency-Key", operationIDRule}}})
		return
	}
	request, err := a.begin(r.Context(), r, id)
	if err != nil {
		a.refuse(w, r, err)
		return
	}
	w.Header().Set("Location", a.Location(request.Resource))
	w.Header().Set("Operation-Id", id)
	pending := View{
		OperationID: id, OperationType: request.Type, OperationCategory: request.Category,
		ResourceType: request.Resource.Type, ResourceID: request.Resource.ID, CorrelationID: request.CorrelationID,
		Status: InProgress, Progress: Progress{Total: len(request.Webhooks)}, CreatedAt: time.Now().UTC(),
	}
	if respondAsync {
		w.Header().Set("Preference-Applied", "respond-async")
	}
	if respondAsync && !waits {
		if repeats { // without a key the id is new, so it has no outcome yet
			if old, ok := a.outcome(r.Context(), request.Resource, id); ok {
				pending = old
			}
		}
		accepted(w, pending)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	view, err := a.Scheduler.Wait(ctx, request.Resource, id, nil)
	switch {
	case err == nil:
		w.Header().Del("Preference-Applied") // it ended in time
		w.Header().Set("Operation-Status", string(view.Status))
		answer(w, http.StatusOK, view)
	case r.Context().Err() != nil: // the client has disconnected
	case ctx.Err() != nil:
		accepted(w, pending)
	case errors.Is(err, ErrNotFound):
		w.Header().Del("Preference-Applied")
		a.refuse(w, r, err)
	default: // the operation has begun, although its end cannot be observed
		a.Logger.WarnContext(r.Context(), "cannot wait for operation", "operation", id, "error", err)
		accepted(w, pending)
	}
}

// outcome returns the final view of the operation with the given id. It returns false if the operation has not ended or
// its state cannot be read.
func (a *async) outcome(ctx context.Context, r Resource, id string) (View, bool) {
	op, err := a.Scheduler.Get(ctx, r)
	if err != nil {
		return View{}, false
	}
	v, ours := ViewOfID(op, id)
	return v, ours && v.Terminal()
}

func accepted(w http.ResponseWriter, v View) {
	if v.Terminal() {
		w.Header().Set("Operation-Status", string(v.Status))
	} else {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, http.StatusAccepted, v)
}

func (a *async) refuse(w http.ResponseWriter, r *http.Request, err error) {
	var (
		status   = http.StatusInternalServerError
		own      interface{ HTTPStatus() int }
		running  *InProgressError
		invalid  *InvalidError
		problem  = map[string]any{"detail": err.Error()}
		internal bool
	)
	switch {
	case errors.As(err, &own):
		status = own.HTTPStatus()
	case errors.As(err, &running):
		status, problem["operationID"] = http.StatusConflict, running.Running.EffectiveID()
	case errors.Is(err, ErrInProgress):
		status = http.StatusConflict
	case errors.As(err, &invalid):
		status, problem["fields"] = http.StatusUnprocessableEntity, invalid.Fields
	case errors.Is(err, ErrIDReused):
		status = http.StatusUnprocessableEntity
	case errors.Is(err, ErrNotFound):
		status = http.StatusNotFound
	case busy(err):
		status, internal = http.StatusServiceUnavailable, true
		after, _ := apierrors.SuggestsClientDelay(err)
		w.Header().Set("Retry-After", strconv.Itoa(min(max(after, 1), maxRetryAfter)))
	case errors.Is(err, context.DeadlineExceeded), apierrors.IsTimeout(err):
		status, internal = http.StatusGatewayTimeout, true
	default:
		internal = true
	}
	if internal {
		a.Logger.ErrorContext(r.Context(), "cannot begin operation", "method", r.Method, "path", r.URL.Path, "error", err)
		problem["detail"] = "the request could not be accepted; send it again: with the same Idempotency-Key nothing " +
			"starts twice"
	}
	problem["title"], problem["status"] = http.StatusText(status), status
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem) // it fails only if the client has disconnected
}

// busy reports whether err is temporary, so that the caller should retry later.
func busy(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// maxRetryAfter bounds the Retry-After, in seconds, that the API server can impose on callers.
const maxRetryAfter = 300

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // it fails only if the client has disconnected
}

// preferences parses the Prefer header of RFC 7240. The first occurrence of a repeated preference counts. Unknown and
// malformed preferences are ignored.
func preferences(values []string, most time.Duration) (respondAsync, waits bool, wait time.Duration) {
	wait = most
	for _, value := range values {
		for preference := range strings.SplitSeq(value, ",") {
			token, _, _ := strings.Cut(preference, ";") // no supported preference has parameters
			name, arg, _ := strings.Cut(token, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				respondAsync = true
			case "wait":
				seconds, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(arg), `"`), 10, 31)
				if err == nil && !waits {
					waits = true
					wait = min(most, time.Duration(seconds)*time.Second)
				}
			}
		}
	}
	return respondAsync, waits, wait
}
