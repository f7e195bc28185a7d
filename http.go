package fairlead

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves the runtime's own pages:
//
//	/healthz           200 while no source is staler than the bound, else 503 with those that are
//	/readyz            200 when, besides, every observer has handled its initial objects
//	/metrics           in the format of Prometheus
//	/debug/observers   who observes what, as text, or as JSON with ?format=json
func (rt *Runtime) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { health(w, rt.stale()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		problems := rt.stale()
		select {
		case <-rt.ready:
		default:
			problems = append(problems, "observers are not synced yet")
		}
		health(w, problems)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(rt.opts.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/observers", func(w http.ResponseWriter, r *http.Request) {
		d := rt.Describe()
		if r.URL.Query().Get("format") == "json" {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(d) // the caller is gone if this fails
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = fmt.Fprint(w, d)
	})
	return mux
}

// stale names the scopes whose state is older than the bound.
func (rt *Runtime) stale() []string {
	var problems []string
	for _, s := range rt.Describe().Sources {
		for _, st := range s.Status {
			if st.Staleness > rt.opts.staleness {
				problems = append(problems, fmt.Sprintf("%s %s: state is %v old: %s %s",
					strings.Join(s.Selector, "+"), st.Namespace, st.Staleness.Round(time.Second), st.Reason, st.Message))
			}
		}
	}
	return problems
}

func health(w http.ResponseWriter, problems []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(problems) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, strings.Join(problems, "\n"))
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// listen serves the Handler until the context ends.
func (rt *Runtime) listen(ctx context.Context) error {
	listener, err := net.Listen("tcp", rt.opts.listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	rt.log.InfoContext(ctx, "serving health, metrics and debug pages", "address", listener.Addr().String())
	return Serve(ctx, listener, rt.Handler())
}

// Serve answers requests until the context ends, then lets those under way finish for up to five seconds. It closes the
// listener.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err := server.Shutdown(bounded)
		if err != nil {
			err = errors.Join(err, server.Close())
		}
		stopped <- err
	})
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		stop()
		return fmt.Errorf("cannot serve: %w", err)
	}
	return <-stopped
}
