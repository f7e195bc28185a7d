package httpapi

import (
	"context"
	_ "embed" // the OpenAPI document
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/operations"
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

// New returns the handler for /operations, /callbacks and /openapi.json. It is safe for concurrent use.
func New(o Options) (http.Handler, error) {
	if o.Scheduler == nil || o.Operations == nil || o.Authorizer == nil {
		return nil, errors.New("cannot make the operations handler: scheduler, operations and authorizer are required")
	}
	o = withDefaults(o)
	limits := newLimits(o)
	if o.Registerer != nil {
		if err := o.Registerer.Register(limits); err != nil {
			return nil, fmt.Errorf("cannot make the operations handler: %w", err)
		}
	}
	front := frontend{timeout: o.Timeout, log: o.Logger}
	admit := newAdmitter(o)
	guard := guard{admitter: admit, requests: limits.requests, timeout: o.Timeout}
	read := reader{store: o.Operations, scheduler: o.Scheduler, pending: o.Pending}
	write := &writer{
		scheduler: o.Scheduler, admitter: admit, keys: newKeys(),
		locator: locator{prefix: strings.TrimRight(o.PublicURL, "/"), namespace: o.Scheduler.Namespace()},
	}
	page := pager{store: o.Operations, scheduler: o.Scheduler, slots: limits.pages}
	stream := streamer{
		admitter: admit, reader: read, followers: followers{store: o.Operations, scheduler: o.Scheduler},
		streams: limits.streams, requests: limits.requests, timeout: o.Timeout, stop: o.Stop,
	}
	callbacks := &callbacks{sink: o.Callbacks, spent: newSpent(), slots: limits.callbacks, timeout: o.Timeout}

	mux := http.NewServeMux()
	handle := func(pattern string, e endpoint) { mux.Handle(pattern, front.serve(e)) }
	handle("GET /operations", guard.require("list", page.list, listParameters...))
	handle("POST /operations", guard.require("create", write.schedule))
	handle("GET /operations/{type}/{id}", guard.require("get", read.get))
	handle("GET /operations/{type}/{id}/events", stream.events)
	handle("POST /operations/{type}/{id}", onlyCancel(guard.require("update", write.cancel)))
	handle("POST /callbacks/{token}", callbacks.serve)
	handle("GET /openapi.json", openapi)
	return traced(o.TracerProvider, mux, front.routes(mux)), nil
}

func withDefaults(o Options) Options {
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

//go:embed openapi.json
var openAPI []byte

func openapi(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/vnd.oai.openapi+json;version=3.1")
	_, _ = w.Write(openAPI) // it fails only if the client has disconnected
	return nil
}
