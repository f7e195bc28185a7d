// Package discover maps kinds to resources with the discovery API of the server.
package discover

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/connection"
)

// NewMapper returns a RESTMapper that reads the resources of the server on first use, and again for unknown kinds. It
// sends requests over rt, not over a transport of cfg. A nil rt makes a connection from cfg for each request.
// Repeated lookups of kinds that the server does not know are limited to ten in a row and one per second. KindFor also
// accepts short names, such as "deploy". Messages of client-go go to log; nil discards them. The mapper is safe for
// concurrent use.
func NewMapper(cfg *rest.Config, rt http.RoundTripper, log *slog.Logger) (meta.RESTMapper, error) {
	if cfg == nil {
		return nil, errors.New("no rest.Config")
	}
	if rt == nil {
		conn, err := connection.New(cfg, connection.Options{})
		if err != nil {
			return nil, err
		}
		conn.Close() // a mapper cannot be closed, so no connection may outlive its request
		rt = conn
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, &http.Client{
		Transport: rt, Timeout: cmp.Or(cfg.Timeout, timeout),
	})
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClientWithContext(discovery.ToDiscoveryInterfaceWithContext(d))
	sink := logr.Discard()
	if log != nil {
		sink = logr.FromSlogHandler(unlessEnded{log.Handler()})
	}
	// The mapper refreshes itself only if its cache is stale, which the memory cache never is. retry resets the mapper
	// instead.
	by := restmapper.NewDeferredDiscoveryRESTMapperWithContext(cached)
	return &mapper{
		by:    by,
		short: restmapper.NewShortcutExpanderWithContext(by, cached, nil),
		ctx:   klog.NewContext(context.Background(), sink),
		again: rate.NewLimiter(1, 10),
	}, nil
}

const timeout = 32 * time.Second // of client-go

// unlessEnded drops log records that only report a cancelled context.
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

type mapper struct {
	by    *restmapper.DeferredDiscoveryRESTMapper
	short meta.RESTMapperWithContext // also resolves short names
	ctx   context.Context            //nolint:containedctx // it carries the logger, which client-go takes in no other form
	again *rate.Limiter
}

// retry calls ask again if the answer is that the kind does not exist.
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
		if meta.IsNoMatchError(err) { // short names require all resources of the server
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
