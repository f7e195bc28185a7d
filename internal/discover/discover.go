// Package discover matches kinds and resources by what the API server says that it has.
package discover

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"
)

// NewMapper returns a mapper that asks the server for its resources when they are needed first, and again for what it
// does not know then. For what the server does not know either it is asked ten times in a row, and once a second later.
// KindFor takes short names, too, such as "deploy". What client-go has to say goes to log; nil: nowhere. It is safe
// for concurrent use.
func NewMapper(cfg *rest.Config, log *slog.Logger) (meta.RESTMapper, error) {
	if cfg == nil {
		return nil, errors.New("no rest.Config")
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return single{next} })
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClientWithContext(discovery.ToDiscoveryInterfaceWithContext(d))
	sink := logr.Discard()
	if log != nil {
		sink = logr.FromSlogHandler(unlessEnded{log.Handler()})
	}
	// The cache in memory calls itself fresh for ever once it was filled, so that the mapper would never ask again.
	by := restmapper.NewDeferredDiscoveryRESTMapperWithContext(cached)
	return &mapper{
		by:    by,
		short: restmapper.NewShortcutExpanderWithContext(by, cached, nil),
		ctx:   klog.NewContext(context.Background(), sink),
		again: rate.NewLimiter(1, 10),
	}, nil
}

// unlessEnded passes on what does not merely say that somebody has stopped waiting.
type unlessEnded struct{ slog.Handler }

// Handle implements slog.Handler.
func (h unlessEnded) Handle(ctx context.Context, r slog.Record) error {
	ended := false
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		ended = ended || errors.Is(err, context.Canceled)
		return true
	})
	if ended {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h unlessEnded) WithAttrs(attrs []slog.Attr) slog.Handler {
	return unlessEnded{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h unlessEnded) WithGroup(name string) slog.Handler {
	return unlessEnded{h.Handler.WithGroup(name)}
}

// single closes the connection of each request: discovery is rare, and nobody would close what it leaves idle.
type single struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (s single) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return s.next.RoundTrip(r)
}

// WrappedRoundTripper gives what is wrapped to those who look for the connections.
func (s single) WrappedRoundTripper() http.RoundTripper { return s.next }

type mapper struct {
	by    *restmapper.DeferredDiscoveryRESTMapper
	short meta.RESTMapperWithContext // knows short names besides
	ctx   context.Context            //nolint:containedctx // it carries the logger, which client-go takes in no other form
	again *rate.Limiter
}

// retry asks again if the answer is that there is no such thing.
func retry[T any](m *mapper, ask func(ctx context.Context) (T, error)) (T, error) {
	found, err := ask(m.ctx)
	if err != nil && meta.IsNoMatchError(err) && m.again.Allow() {
		m.Reset()
		return ask(m.ctx)
	}
	return found, err
}

// Reset implements [meta.ResettableRESTMapper].
func (m *mapper) Reset() { m.by.ResetWithContext(m.ctx) }

func (m *mapper) KindFor(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return retry(m, func(ctx context.Context) (schema.GroupVersionKind, error) {
		kind, err := m.by.KindForWithContext(ctx, r)
		if meta.IsNoMatchError(err) { // what looks for short names goes through all that the server has
			return m.short.KindForWithContext(ctx, r)
		}
		return kind, err
	})
}

func (m *mapper) KindsFor(r schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return retry(m, func(ctx context.Context) ([]schema.GroupVersionKind, error) {
		return m.by.KindsForWithContext(ctx, r)
	})
}

func (m *mapper) ResourceFor(r schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return retry(m, func(ctx context.Context) (schema.GroupVersionResource, error) {
		return m.by.ResourceForWithContext(ctx, r)
	})
}

func (m *mapper) ResourcesFor(r schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return retry(m, func(ctx context.Context) ([]schema.GroupVersionResource, error) {
		return m.by.ResourcesForWithContext(ctx, r)
	})
}

func (m *mapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return retry(m, func(ctx context.Context) (*meta.RESTMapping, error) {
		return m.by.RESTMappingWithContext(ctx, gk, versions...)
	})
}

func (m *mapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return retry(m, func(ctx context.Context) ([]*meta.RESTMapping, error) {
		return m.by.RESTMappingsWithContext(ctx, gk, versions...)
	})
}

func (m *mapper) ResourceSingularizer(resource string) (string, error) {
	return m.by.ResourceSingularizerWithContext(m.ctx, resource)
}
