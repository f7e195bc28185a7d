package httpapi

import (
	"context"
	_ "embed" // the OpenAPI document
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/access"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Options configures the handler. Scheduler, Operations and Authorizer are required.
type Options struct {
	// Scheduler writes Operations. Its namespace is the default namespace of requests.
	Scheduler *operations.Scheduler
	// Operations is the store for reads, with the namespaces that are served. If it holds only some slots
	// (store.Options.Shard), the handler reads the rest from the API server.
	Operations *cache.Store
	// Namespaces are served besides that of the Scheduler. All serves every namespace.
	Namespaces []string
	All        bool
	// Authorizer decides about rights. Use [Anonymous] only if no other machine can connect.
	Authorizer Authorizer
	// Pending returns an operation that was accepted but is not written yet. A service that schedules through an outbox
	// sets it, so that its Location works from the start. Default: none are pending.
	Pending func(ctx context.Context, namespace string, r operations.Resource) (operations.View, bool)
	// Callbacks accepts the outcomes of AsyncCallback webhooks. Default: every callback is unknown.
	Callbacks CallbackSink
	// PublicURL is the prefix of Location. Default: empty, so that Location is relative to the server.
	PublicURL string
	// MaxInFlight bounds the number of concurrent requests. Further requests wait for some seconds. Default: 64.
	//
	// This bound and the next two are shared, first between namespaces, then between the callers of one namespace. A
	// namespace may use as many slots as remain free, so half of them if it is alone. A caller may use half as many as
	// remain free, so a third if it is alone.
	MaxInFlight int
	// MaxStreams bounds the number of concurrent event streams. Default: 1,024.
	MaxStreams int
	// MaxCallbacks bounds the number of concurrent callbacks with a valid token. Others take no slot. Default: 64.
	MaxCallbacks int
	// Timeout bounds a request including reading its body, and then writing the answer. For an event stream it bounds
	// the start and each event. Default: 30s.
	Timeout time.Duration
	// Stop, when closed, ends the event streams, so that a server can shut down. Clients reconnect with their last
	// event ID. Default: streams last until the caller disconnects or the operation ends.
	Stop <-chan struct{}
	// Logger receives one line per refused or failed request. The level is debug if the caller is unknown or the server
	// is overloaded. Default: discarded.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: none.
	Registerer prometheus.Registerer
	// TracerProvider creates a span for each request except event streams. Default: none. Independently of it, a
	// scheduled operation records the caller's trace from the W3C Trace Context headers.
	TracerProvider trace.TracerProvider
}

// Bounds of requests, and the Retry-After of unfinished operations.
const (
	maxBody      = 512 << 10
	maxCallback  = 16 << 10
	maxPage      = 500
	defaultPage  = 50
	retrySeconds = 2
)

type handler struct {
	Options
	limits *limits
	keys   *keys
	spent  *spent // callbacks with a known result
	shared bool   // several namespaces share the slots
	log    *slog.Logger
}

// New returns the handler for /operations, /callbacks and /openapi.json. It is safe for concurrent use.
func New(o Options) (http.Handler, error) {
	if o.Scheduler == nil || o.Operations == nil || o.Authorizer == nil {
		return nil, errors.New("cannot make the operations handler: scheduler, operations and authorizer are required")
	}
	for _, bound := range []struct {
		of        *int
		otherwise int
	}{{&o.MaxInFlight, defaultInFlight}, {&o.MaxStreams, defaultStreams}, {&o.MaxCallbacks, defaultCallbacks}} {
		if *bound.of <= 0 {
			*bound.of = bound.otherwise
		}
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	h := &handler{Options: o, log: o.Logger, limits: newLimits(o), keys: newKeys(), spent: newSpent()}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(h.limits); err != nil {
			return nil, fmt.Errorf("cannot make the operations handler: %w", err)
		}
	}
	own := func(namespace string) bool { return namespace == o.Scheduler.Namespace() }
	h.shared = o.All || slices.ContainsFunc(o.Namespaces, func(namespace string) bool { return !own(namespace) })
	h.PublicURL = strings.TrimRight(h.PublicURL, "/")
	mux := http.NewServeMux()
	mux.Handle("GET /operations", h.limited("list", h.list, listParameters...))
	mux.Handle("POST /operations", h.limited("create", h.schedule))
	mux.Handle("GET /operations/{type}/{id}", h.limited("get", h.get))
	mux.Handle("GET /operations/{type}/{id}/events", h.plain(h.events))
	mux.Handle("POST /operations/{type}/{id}", h.canceling(h.limited("update", h.cancel)))
	mux.Handle("POST /callbacks/{token}", h.plain(h.callback))
	mux.Handle("GET /openapi.json", h.plain(openapi))
	return h.traced(mux, h.known(mux)), nil
}

// maxLogged bounds the path and the error in a log line, in bytes. Callers control both.
const maxLogged = 512

func (h *handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, level := answerProblem(w, err), slog.LevelInfo
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests,
		http.StatusServiceUnavailable:
		level = slog.LevelDebug
	}
	h.log.Log(r.Context(), level, "request refused", "method", r.Method, "path", short(loggable(r.URL), maxLogged),
		"status", status,
		"error", short(err.Error(), maxLogged))
}

// short truncates a text to the given number of bytes.
func short(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	return strings.ToValidUTF8(text[:bytes], "") + "…"
}

// known answers requests for unknown endpoints with a problem, too.
func (h *handler) known(mux *http.ServeMux) http.Handler {
	nothing := h.plain(func(w http.ResponseWriter, r *http.Request) error {
		next, _ := mux.Handler(r)
		probe := &statusOnly{header: w.Header()}
		next.ServeHTTP(probe, r)
		if probe.status == http.StatusMethodNotAllowed {
			detail := short(r.Method, 64) + " is not possible here; " + w.Header().Get("Allow") + " is"
			return &Problem{Status: probe.status, Title: http.StatusText(probe.status), Detail: detail}
		}
		return &Problem{Status: http.StatusNotFound, Title: "Not Found", Detail: "no such path: see /operations"}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			nothing.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// statusOnly records the status of an answer and drops its body.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header         { return s.header }
func (s *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (s *statusOnly) WriteHeader(status int)      { s.status = status }

// loggable returns the path without callback tokens.
func loggable(u *url.URL) string {
	if strings.HasPrefix(u.Path, "/callbacks/") {
		return "/callbacks/…"
	}
	return u.Path
}

// admit finds the namespace of a request and checks the caller's right. The admission collects other problems, such as
// a query parameter that is neither the namespace nor one of parameters.
func (h *handler) admit(r *http.Request, verb string, parameters ...string) (a admission, err error) {
	a.query, err = url.ParseQuery(r.URL.RawQuery)
	malformed := err != nil
	a.namespace, a.token = a.query.Get("namespace"), access.Bearer(r)
	if a.namespace == "" {
		a.namespace = h.Scheduler.Namespace()
	}
	served := a.namespace == h.Scheduler.Namespace() || slices.Contains(h.Namespaces, a.namespace)
	valid := served || len(validation.IsDNS1123Label(a.namespace)) == 0
	if valid { // an invalid name needs no request to the API server
		if err := h.Authorizer.Authorize(r.Context(), a.token, verb, a.namespace); err != nil {
			return a, err
		}
		serve.Known(r.Context())
	}
	if !served && !(valid && h.All) {
		a.wrong.add(http.StatusNotFound, "Namespace not served", operations.FieldError{
			Field: "query namespace", Problem: "is " + strconv.Quote(short(a.namespace, maxName)) +
				", whose operations this server does not serve",
		})
	}
	if malformed {
		a.wrong.parameter("string", "is malformed: escape % and ;")
	}
	a.wrong.parameters(a.query, append([]string{"namespace"}, parameters...))
	if !valid {
		return a, a.wrong.problem()
	}
	if a.who.Member = callerOf(r.Context(), h.Authorizer, a.token); a.who.Member != "" && h.shared {
		a.who.Group = a.namespace
	}
	return a, nil
}

// may checks a further right of the caller.
func (h *handler) may(r *http.Request, a admission, verb string) error {
	return h.Authorizer.Authorize(r.Context(), a.token, verb, a.namespace)
}

func resource(r *http.Request) operations.Resource {
	return operations.Resource{Type: r.PathValue("type"), ID: r.PathValue("id")}
}

func objectOf(namespace string, res operations.Resource) cache.Key {
	return cache.Key{Namespace: namespace, Name: v1alpha1.OperationName(res.Type, res.ID)}
}

// find returns the Operation of a resource. It takes an operation in progress from the store. It confirms an ended or
// missing operation with the API server, because the store may not have a just-scheduled request yet. Otherwise a
// caller could see the outcome of a previous request as that of its own.
func (h *handler) find(r *http.Request, namespace string, res operations.Resource) (*v1alpha1.Operation, error) {
	if op, err := cache.Of[v1alpha1.Operation](h.Operations).Get(objectOf(namespace, res)); err == nil && !op.Terminal() {
		return op, nil
	}
	return h.Scheduler.In(namespace).Get(r.Context(), res)
}

func (h *handler) get(w http.ResponseWriter, r *http.Request, a admission) error {
	if err := a.wrong.problem(); err != nil {
		return err
	}
	op, err := h.find(r, a.namespace, resource(r))
	if h.Pending != nil {
		if v, ok := h.Pending(r.Context(), a.namespace, resource(r)); ok &&
			(err != nil || op.EffectiveID() != v.OperationID) {
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

func (h *handler) show(w http.ResponseWriter, status int, op *v1alpha1.Operation) {
	h.showView(w, status, operations.ViewOf(op))
}

func (h *handler) showView(w http.ResponseWriter, status int, v operations.View) {
	if !v.Terminal() {
		w.Header().Set("Retry-After", strconv.Itoa(retrySeconds))
	}
	writeJSON(w, status, v)
}

func (h *handler) location(namespace string, res operations.Resource) string {
	at := h.PublicURL + res.Path()
	if namespace != h.Scheduler.Namespace() {
		at += "?namespace=" + url.QueryEscape(namespace)
	}
	return at
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	write(w, status, "application/json", body)
}

// write sets Content-Length, so that clients detect truncated answers.
func write(w http.ResponseWriter, status int, contentType string, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err) // every body can be encoded
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)+1))
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // it fails only if the client has disconnected
}

//go:embed openapi.json
var openAPI []byte

func openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
	_, _ = w.Write(openAPI) // it fails only if the client has disconnected
	return nil
}
