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

// Begin is the part of an API service that begins a slow request: within its own transaction it checks the request,
// marks its resource as not ready, and enqueues the returned Request (package outbox), so that the operation is
// scheduled with the commit and never before it. A service without an outbox commits first and then calls Schedule.
//
// id is the operation id of this request; Request.ID must be it. Errors answer the caller: [ErrInProgress] as 409, an
// error with a method HTTPStatus() int as that, one of the API server that is throttling or out of order as 503 with
// Retry-After, a deadline as 504, others as 500. After those the operation may have been begun all the same: the same
// Idempotency-Key tells.
type Begin func(ctx context.Context, r *http.Request, id string) (Request, error)

// AsyncOptions configure the middleware. Scheduler is required.
type AsyncOptions struct {
	// Scheduler is asked for what has become of an operation.
	Scheduler *Scheduler
	// Location returns where the operation of a resource is shown. Default: [Resource.Path].
	Location func(Resource) string
	// WaitAtMost bounds how long a request without Prefer: respond-async waits for the end. Default: 30 s.
	WaitAtMost time.Duration
	// Logger gets one line per failed request. Default: discarded.
	Logger *slog.Logger
}

// Async returns a handler that begins an operation and answers by RFC 7240:
//
//   - Prefer: respond-async: 202 at once, with Location and Preference-Applied;
//   - Prefer: wait=N, with or without respond-async: after at most N seconds, 200 with the outcome if it is there by
//     then, else 202;
//   - neither: as wait, up to WaitAtMost.
//
// An operation that failed answers 200 too: the request for its state succeeded, and the state is in the body; the
// header Operation-Status says it as well. The header Idempotency-Key, if sent, becomes the operation id; when its
// operation has ended already, every answer has that outcome.
//
// What begin is given is in the trace of the caller, as the headers of W3C Trace Context tell it, unless the context of
// the request is in one already; see [Scheduler.Schedule].
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
	} else if !isOperationID(id) { // known before anything is begun, and promised
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
		if repeats { // whoever sends no key asks for nothing old
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
		w.Header().Del("Preference-Applied") // it has ended in time
		w.Header().Set("Operation-Status", string(view.Status))
		answer(w, http.StatusOK, view)
	case r.Context().Err() != nil: // nobody is there to be answered
	case ctx.Err() != nil:
		accepted(w, pending)
	case errors.Is(err, ErrNotFound):
		w.Header().Del("Preference-Applied")
		a.refuse(w, r, err)
	default: // it was begun, whatever keeps us from seeing its end
		a.Logger.WarnContext(r.Context(), "cannot wait for operation", "operation", id, "error", err)
		accepted(w, pending)
	}
}

// outcome returns how the operation with that id has ended. It reports false if it has not, or nobody knows.
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
		problem["detail"] = "the request could not be accepted; it may be sent again, and with the same Idempotency-Key nothing is begun twice"
	}
	problem["title"], problem["status"] = http.StatusText(status), status
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem) // the caller is gone if this fails
}

// busy tells whether all that helps is to come again later.
func busy(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// maxRetryAfter bounds, in seconds, for how long callers are sent away because the API server says so.
const maxRetryAfter = 300

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller is gone if this fails
}

// preferences reads the header Prefer of RFC 7240. Of a preference that is sent twice the first one counts, and what
// is unknown or malformed is ignored.
func preferences(values []string, most time.Duration) (respondAsync, waits bool, wait time.Duration) {
	wait = most
	for _, value := range values {
		for preference := range strings.SplitSeq(value, ",") {
			token, _, _ := strings.Cut(preference, ";") // parameters mean nothing here
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
