package httpapi

import (
	"context"
	_ "embed" // the OpenAPI document
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/store"
)

// Options configure the handler. Scheduler, Operations and Authorizer are required.
type Options struct {
	// Scheduler writes; its namespace is the default one.
	Scheduler *operation.Scheduler
	// Operations is what is read. It holds the namespaces that are served.
	Operations *store.Store
	// Namespaces are those that are served besides that of the Scheduler. All allows every one.
	Namespaces []string
	All        bool
	// Authorizer decides who may do what. Use [Anonymous] only where nobody else can connect.
	Authorizer Authorizer
	// Pending tells of an operation that was accepted but is not written yet, for a service that schedules through an outbox:
	// the Location that it has given away is good from the first moment. Default: there are none.
	Pending func(ctx context.Context, namespace string, r operation.Resource) (operation.View, bool)
	// Callbacks takes the outcomes of AsyncCallback webhooks. Default: they are unknown.
	Callbacks CallbackSink
	// PublicURL is what Location starts with. Default: nothing, so that it is relative to the server that was asked.
	PublicURL string
	// MaxInFlight bounds the requests at a time, event streams not counted. Default: 256.
	MaxInFlight int
	// MaxStreams bounds the event streams at a time. Default: 1,024.
	MaxStreams int
	// Timeout bounds a request with the reading of its body, and after it the writing of the answer. Of an event stream it bounds the
	// beginning and each event. Default: 30s.
	Timeout time.Duration
	// Stop ends the event streams when it is closed, so that a server that shuts down has no requests which never end; who listened comes again,
	// with what was seen last. Default: they go on until the caller or the operation ends them.
	Stop <-chan struct{}
	// Logger gets one line per refused or failed request. Default: discarded.
	Logger *slog.Logger
}

// Bounds of what callers may send.
const (
	maxBody      = 512 << 10
	maxPage      = 500
	defaultPage  = 50
	retrySeconds = 2
)

type handler struct {
	Options
	requests, streams chan struct{}
	keys              keys
	log               *slog.Logger
}

// New returns the handler of everything under /operations and /callbacks. It is safe for concurrent use.
func New(o Options) (http.Handler, error) {
	if o.Scheduler == nil || o.Operations == nil || o.Authorizer == nil {
		return nil, errors.New("cannot make the operations handler: scheduler, operations and authorizer are required")
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 256
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = 1024
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	h := &handler{
		Options: o, log: o.Logger,
		requests: make(chan struct{}, o.MaxInFlight), streams: make(chan struct{}, o.MaxStreams),
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	h.PublicURL = strings.TrimRight(h.PublicURL, "/")
	mux := http.NewServeMux()
	mux.Handle("GET /operations", h.limited(h.list))
	mux.Handle("POST /operations", h.limited(h.schedule))
	mux.Handle("GET /operations/{type}/{id}", h.limited(h.get))
	mux.Handle("GET /operations/{type}/{id}/events", h.plain(h.events))
	mux.Handle("POST /operations/{type}/{id}", h.limited(h.cancel)) // {id} ends in :cancel
	mux.Handle("POST /callbacks/{token}", h.limited(h.callback))
	mux.HandleFunc("GET /openapi.json", openapi)
	return h.known(mux), nil
}

// endpoint answers a request or returns why not.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// limited bounds the time and the number of requests.
func (h *handler) limited(next endpoint) http.Handler {
	return h.plain(func(w http.ResponseWriter, r *http.Request) error {
		select {
		case h.requests <- struct{}{}:
			defer func() { <-h.requests }()
		default:
			w.Header().Set("Retry-After", "1")
			return &Problem{Status: http.StatusServiceUnavailable, Title: "Too many requests in flight", Detail: "try again in a second"}
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
		defer cancel()
		// A context ends neither the reading of a body that never comes nor the writing to somebody who does not read.
		control, now := http.NewResponseController(w), time.Now()
		if r.ContentLength != 0 {
			_ = control.SetReadDeadline(now.Add(h.Timeout)) // only some test servers cannot
		}
		_ = control.SetWriteDeadline(now.Add(2 * h.Timeout))
		if err := next(w, r.WithContext(ctx)); err != nil {
			h.refuse(w, r, err)
		}
		_ = control.Flush()
		_ = control.SetWriteDeadline(time.Time{}) // the connection may serve other pages next
		return nil
	})
}

func (h *handler) plain(next endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := next(w, r); err != nil {
			h.refuse(w, r, err)
		}
	})
}

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := answerProblem(w, err)
	h.log.InfoContext(r.Context(), "request refused", "method", r.Method, "path", loggable(r.URL), "status", status, "error", err)
}

// known answers what no endpoint is there for as problems too.
func (h *handler) known(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		probe := &statusOnly{header: w.Header()}
		next.ServeHTTP(probe, r)
		p := &Problem{Status: probe.status, Title: http.StatusText(probe.status)}
		if probe.status == http.StatusMethodNotAllowed {
			p.Detail = r.Method + " is not possible here; " + w.Header().Get("Allow") + " is"
		} else {
			p.Status, p.Title, p.Detail = http.StatusNotFound, "Not Found", "no such path: see /operations"
		}
		p.write(w)
	})
}

// statusOnly takes the status of an answer and drops its body.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// loggable is the path without what must not be in a log.
func loggable(u *url.URL) string {
	if strings.HasPrefix(u.Path, "/callbacks/") {
		return "/callbacks/…"
	}
	return u.Path
}

// enter finds the namespace of a request and checks the caller's right.
func (h *handler) enter(r *http.Request, verb string) (namespace string, err error) {
	namespace, wrong, err := h.admit(r, verb)
	if err == nil {
		err = wrong.problem()
	}
	return namespace, err
}

// admit is enter for requests with which other things may be wrong too.
func (h *handler) admit(r *http.Request, verb string) (namespace string, wrong faults, err error) {
	namespace = r.URL.Query().Get("namespace")
	if namespace == "" {
		namespace = h.Scheduler.Namespace()
	}
	if err := h.Authorizer.Authorize(r.Context(), bearer(r), verb, namespace); err != nil {
		return "", wrong, err
	}
	served := namespace == h.Scheduler.Namespace() || slices.Contains(h.Namespaces, namespace) || h.All && len(validation.IsDNS1123Label(namespace)) == 0
	if !served {
		wrong.add(http.StatusNotFound, "Namespace not served", operation.FieldError{
			Field: "query namespace", Problem: "is " + strconv.Quote(namespace) + ", whose operations this server does not serve",
		})
	}
	return namespace, wrong, nil
}

func resource(r *http.Request) operation.Resource {
	return operation.Resource{Type: r.PathValue("type"), ID: r.PathValue("id")}
}

// find returns the Operation of a resource. The store is good enough for one that is in progress; an end, or none, is confirmed by the API
// server, since what was scheduled a moment ago may not have come by: nobody is shown the outcome before as that of their request.
func (h *handler) find(r *http.Request, namespace string, res operation.Resource) (*v1alpha1.Operation, error) {
	key := store.Key{Namespace: namespace, Name: v1alpha1.OperationName(res.Type, res.ID)}
	if op, err := store.Of[v1alpha1.Operation](h.Operations).Get(key); err == nil && !op.Terminal() {
		return op, nil
	}
	return h.Scheduler.In(namespace).Get(r.Context(), res)
}

func (h *handler) get(w http.ResponseWriter, r *http.Request) error {
	namespace, err := h.enter(r, "get")
	if err != nil {
		return err
	}
	op, err := h.find(r, namespace, resource(r))
	if h.Pending != nil {
		if v, ok := h.Pending(r.Context(), namespace, resource(r)); ok && (err != nil || op.EffectiveID() != v.OperationID) {
			h.showView(w, http.StatusOK, v)
			return nil
		}
	}
	if err != nil {
		return err
	}
	h.show(w, http.StatusOK, op)
	return nil
}

// show answers with the view of an operation.
func (h *handler) show(w http.ResponseWriter, status int, op *v1alpha1.Operation) {
	h.showView(w, status, operation.ViewOf(op))
}

func (h *handler) showView(w http.ResponseWriter, status int, v operation.View) {
	if !v.Terminal() {
		w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	}
	writeJSON(w, status, v)
}

// Location is the path of the operation of a resource.
func Location(r operation.Resource) string { return r.Path() }

func (h *handler) location(namespace string, res operation.Resource) string {
	at := h.PublicURL + Location(res)
	if namespace != h.Scheduler.Namespace() {
		at += "?namespace=" + url.QueryEscape(namespace)
	}
	return at
}

func (h *handler) schedule(w http.ResponseWriter, r *http.Request) error {
	namespace, wrong, err := h.admit(r, "create")
	if err != nil {
		return err
	}
	spec, err := readSpec(w, r, &wrong)
	if err == nil {
		err = wrong.problem()
	}
	if err != nil {
		return err
	}
	res := operation.Resource{Type: spec.ResourceType, ID: spec.ResourceID}
	var op *v1alpha1.Operation
	if spec.OperationID != "" {
		ours, done := h.keys.claim(keyOf{namespace, spec.OperationID}, res)
		if !ours {
			return operation.ErrIDReused
		}
		defer func() { done(op != nil || maybeWritten(err)) }()
	}
	if op, err = h.Scheduler.In(namespace).ScheduleSpec(r.Context(), spec); err != nil {
		return err
	}
	w.Header().Set("Location", h.location(namespace, res))
	h.show(w, http.StatusAccepted, op)
	return nil
}

// maybeWritten tells whether an operation may be there all the same.
func maybeWritten(err error) bool {
	var invalid *operation.InvalidError
	var running *operation.InProgressError
	return !errors.As(err, &invalid) && !errors.As(err, &running) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err)
}

func (h *handler) cancel(w http.ResponseWriter, r *http.Request) error {
	id, ok := strings.CutSuffix(r.PathValue("id"), ":cancel")
	if !ok {
		w.Header().Set("Allow", "GET, HEAD")
		return &Problem{
			Status: http.StatusMethodNotAllowed, Title: "Method Not Allowed",
			Detail: "POST is for …/{resourceID}:cancel; GET shows an operation, POST /operations schedules one",
		}
	}
	namespace, err := h.enter(r, "update")
	if err != nil {
		return err
	}
	res := operation.Resource{Type: r.PathValue("type"), ID: id}
	op, err := h.Scheduler.In(namespace).Cancel(r.Context(), res, "")
	if err != nil {
		return err
	}
	w.Header().Set("Location", h.location(namespace, res))
	h.show(w, http.StatusAccepted, op)
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	write(w, status, "application/json", body)
}

// write answers with a length, so that nobody takes a part for the whole.
func write(w http.ResponseWriter, status int, contentType string, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err) // what is written came from JSON
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // the caller is gone if this fails
}

//go:embed openapi.json
var openAPI []byte

// OpenAPI returns the description of the API, OpenAPI 3.1 as JSON. It belongs to the caller.
func OpenAPI() []byte { return slices.Clone(openAPI) }

func openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
	_, _ = w.Write(openAPI) // the caller is gone if this fails
}
