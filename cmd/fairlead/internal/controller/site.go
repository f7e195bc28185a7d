package controller

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/operations"
	operationsconsole "github.com/fairlead-io/fairlead/operations/console"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// requestTimeout bounds a request of the HTTP API from its header to the end of the answer, except event streams.
const requestTimeout = time.Minute

// unauthorizedTimeout bounds how long a connection without an authorized request may stay idle.
const unauthorizedTimeout = 10 * time.Second

// maxMetricsConnections bounds the connections for metrics: probes and a few scrapers.
const maxMetricsConnections = 128

// servedMessage is the log message with the address of the HTTP API.
const servedMessage = "HTTP API is served"

// ServedAddress returns the address of the HTTP API from the line with which a controller logs it.
func ServedAddress(line string) (address string, ok bool) {
	_, attributes, ok := strings.Cut(line, strconv.Quote(servedMessage))
	if !ok {
		return "", false
	}
	_, address, _ = strings.Cut(strings.TrimSpace(attributes), "address=")
	return address, true
}

// site contains the pages of the controller. Its fields do not change once it serves.
type site struct {
	o          ServeOptions
	namespaces []string // served; empty: all
	system     string   // namespace of the console's sessions
	log        *slog.Logger
	tracers    trace.TracerProvider
	rt         *fairlead.Runtime

	operations, webhooks *cache.Store
	scheduler            *operations.Scheduler
	executor             *executor.Executor
	key                  []byte   // seals the sessions of the console; all replicas share it
	sharing              *sharing // nil: the operations are not shared
}

// register makes the runtime serve the HTTP API and the pages, also without leadership and until the running calls have
// ended. Receivers with callbacks, and clients, cannot know that this process is stopping.
func (s *site) register(l *listeners, ready func(net.Addr)) error {
	var authorizer authorizer = httpapi.Anonymous{}
	if !s.o.NoAuth {
		reviews := httpapi.NewKubernetes(s.rt.Calls(), s.o.audiences...)
		if err := s.rt.Registry().Register(reviews); err != nil {
			return err
		}
		authorizer = reviews
	}
	s.rt.GuardDebug(func(pages http.Handler) http.Handler {
		return httpapi.Protect(pages, authorizer, s.namespaces...)
	})
	s.rt.Handle("/debug/flows", s.executor.Flows().DebugHandler())
	if l.metrics != nil {
		pages, err := s.onlyLocal(s.ownPages())
		if err != nil {
			return err
		}
		server := serve.New(pages, serve.Options{
			MaxConnections: maxMetricsConnections, WriteTimeout: requestTimeout, Logger: s.log,
		})
		s.rt.AddAlways("metrics", func(ctx context.Context) error {
			s.log.InfoContext(ctx, "serving metrics", "metricsAddress", l.metrics.Addr().String())
			return server.Run(ctx, l.metrics)
		})
	}
	if l.api == nil {
		return nil
	}
	stop := make(chan struct{})
	handler, err := s.handler(authorizer, stop, l)
	if err != nil {
		return err
	}
	o := serve.Options{WriteTimeout: requestTimeout, StrangerTime: unauthorizedTimeout, Logger: s.log}
	if l.certificate != nil {
		if o.TLS = l.certificate.Config(); l.proxy != nil {
			o.TLS = l.proxy.TLS(o.TLS)
		}
		if err := s.rt.Registry().Register(l.certificate); err != nil {
			return err
		}
		s.rt.AddAlways("certificate", l.certificate.Run)
	}
	server := serve.New(handler, o)
	if err := s.rt.Registry().Register(server); err != nil {
		return err
	}
	s.rt.AddAlways("http", func(ctx context.Context) error {
		if !s.o.NoAuth && slices.Contains(s.o.audiences, "") && !isLoopback(l.api) {
			s.log.WarnContext(ctx,
				"callers authenticate with tokens that the API server itself accepts, which they should not send to "+
					"other servers: let them request tokens for a separate audience, and set --audience to it",
				"flag", "--audience="+ownAudience)
		}
		// ServedAddress reads this line
		s.log.InfoContext(ctx, servedMessage, "scheme", s.o.scheme(), "address", l.api.Addr().String())
		if ready != nil {
			ready(l.api.Addr())
		}
		defer context.AfterFunc(ctx, func() { close(stop) })()
		return server.Run(ctx, l.api)
	})
	return nil
}

func isLoopback(on net.Listener) bool {
	at, ok := on.Addr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// handler returns the HTTP API, and the controller's own pages unless they have a separate address. Event streams end
// when stop is closed.
func (s *site) handler(authorizer authorizer, stop <-chan struct{}, l *listeners) (http.Handler, error) {
	api, err := httpapi.New(httpapi.Options{
		Scheduler: s.scheduler, Operations: s.operations, Namespaces: s.namespaces, All: len(s.namespaces) == 0,
		Authorizer: authorizer, Callbacks: s.executor.Taker(), PublicURL: s.o.publicURL, Stop: stop, Logger: s.log,
		Registerer: s.rt.Registry(), TracerProvider: s.tracers,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", api)
	s.health(mux)
	pages, err := s.console(authorizer)
	if err != nil {
		return nil, err
	}
	mux.Handle("/console/", pages)
	mux.Handle("/api/", pages)
	if l.metrics == nil {
		metrics := s.rt.Handler()
		if !isLoopback(l.api) {
			metrics = httpapi.Protect(metrics, authorizer, s.namespaces...)
		}
		mux.Handle("/metrics", metrics)
		mux.Handle("/debug/", s.rt.Handler())
	}
	return s.onlyLocal(l.proxy.Handler(mux))
}

// authorizer decides about operations for the HTTP API, and about any access for the console.
type authorizer interface {
	httpapi.Authorizer
	console.Authorizer
}

// console returns the console. All replicas share the callback key, so it seals the sessions.
func (s *site) console(authorizer authorizer) (http.Handler, error) {
	o := console.Options{
		Runtime: s.rt, Shards: s.sharing.report(), InsecureNoAuth: s.o.NoAuth, SessionKey: s.key,
		SessionNamespace: s.system, Logger: s.log, Sections: []console.Section{operationsconsole.Section{
			Operations: s.operations, Webhooks: s.webhooks, Scheduler: s.scheduler, Executor: s.executor,
			Namespaces: s.namespaces, TraceURL: s.o.traceURL,
		}},
	}
	if !s.o.NoAuth {
		o.Authorizer = authorizer
	}
	return console.New(o)
}

// ownPages returns the controller's own pages.
func (s *site) ownPages() http.Handler {
	mux := http.NewServeMux()
	s.health(mux)
	mux.Handle("/metrics", s.rt.Handler())
	mux.Handle("/debug/", s.rt.Handler())
	return mux
}

func (s *site) health(mux *http.ServeMux) {
	mux.Handle("/healthz", s.rt.Handler())
	mux.Handle("GET /readyz", s.sharing.ready(s.rt.Handler()))
}

// onlyLocal refuses pages of other sites if no authentication is required.
func (s *site) onlyLocal(pages http.Handler) (http.Handler, error) {
	if !s.o.NoAuth {
		return pages, nil
	}
	return localOnly(pages, s.o.publicURL)
}
