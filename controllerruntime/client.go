package controllerruntime

import (
	"fmt"
	"net/http"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	fairlead "github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
)

// NewClient returns the client of a manager with the defaults of [Options]. It is a client.NewClientFunc.
func NewClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	return Options{}.NewClient(cfg, opts)
}

// NewClient returns the client of a manager. It is the client of controller-runtime, except that readers of the cache
// see its writes at once. The cache must come from NewCache, or read Options.Stores, or wrap a cache of NewCache that
// was made with the same HTTP client, as in a manager. Without a cache, NewClient returns the plain client of
// controller-runtime. It is a client.NewClientFunc.
//
// Reads need not wait for writes, so NewClient ignores EnableReadYourWritesConsistency.
func (o Options) NewClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	if opts.Cache == nil || opts.Cache.Reader == nil {
		return client.New(cfg, opts)
	}
	if opts.HTTPClient == nil {
		var err error
		if opts.HTTPClient, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, fmt.Errorf("cannot make client: %w", err)
		}
	}
	shown := overlaidBy(opts.HTTPClient, false)
	stores := o.storesOf(opts.Cache.Reader, shown)
	if len(stores) == 0 {
		return nil, fmt.Errorf("cannot make client: %w", notOursError(opts.Cache.Reader))
	}
	reads := *opts.Cache
	reads.EnableReadYourWritesConsistency = nil
	if c, ok := reads.Reader.(*caching); ok {
		c.written.Store(true)
		reads.Reader = c.Cache
	}
	visible := *opts.HTTPClient
	visible.Transport = opts.HTTPClient.Transport
	for _, s := range stores {
		if shown == nil || !slices.Contains(shown.stores(), s) {
			visible.Transport = o.overlay(visible.Transport, s)
		}
	}
	if o.FilterOwnWrites {
		visible.Transport = owning{visible.Transport}
	}
	opts.Cache, opts.HTTPClient = &reads, &visible
	c, err := client.New(cfg, opts)
	if err != nil || len(o.Drop) == 0 && len(o.DropManagedFields) == 0 {
		return c, err
	}
	return careful{c, o, stores}, nil
}

// storesOf returns the stores in which the writes of a client are to be visible: those of the options or of the cache
// that it reads. For a cache of another type they are those of the HTTP client.
func (o Options) storesOf(reader client.Reader, shown *overlaid) []*store.Cache {
	if o.Stores != nil {
		return []*store.Cache{o.Stores}
	}
	if s := Stores(reader); s != nil {
		return []*store.Cache{s}
	}
	if shown != nil {
		return shown.stores()
	}
	return nil
}

func notOursError(reader client.Reader) error {
	return fmt.Errorf("cache %T was not made by NewCache of this package, so the client could not show its writes; "+
		"set ctrl.Options.NewCache too; if the cache wraps one that was, set Options.Stores to Stores(inner)", reader)
}

// overlay returns a transport that applies the answers to writes to stores.
func (o Options) overlay(next http.RoundTripper, stores *store.Cache) http.RoundTripper {
	return fairlead.Overlay(next, stores, fairlead.OverlayOptions{Logger: o.Logger})
}

// owning is a transport that marks writes with the name of the writer.
type owning struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o owning) RoundTrip(r *http.Request) (*http.Response, error) {
	by := binding.Binding{Write: store.WriteContext{Owner: writer}}
	return o.RoundTripper.RoundTrip(r.WithContext(binding.With(r.Context(), by)))
}

// WrappedRoundTripper returns the underlying transport.
func (o owning) WrappedRoundTripper() http.RoundTripper { return o.RoundTripper }
