package controllerruntime

import (
	"errors"
	"fmt"
	"net/http"

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
// see its writes at once. The cache must come from NewCache or read Options.Stores. Without a cache, NewClient returns
// the plain client of controller-runtime. It is a client.NewClientFunc.
func (o Options) NewClient(cfg *rest.Config, opts client.Options) (client.Client, error) {
	if opts.Cache == nil || opts.Cache.Reader == nil {
		return client.New(cfg, opts)
	}
	stores := o.Stores
	if stores == nil {
		stores = Stores(opts.Cache.Reader)
	}
	if stores == nil {
		return nil, fmt.Errorf("cannot make client: %w", errNotOurs)
	}
	if c, ok := opts.Cache.Reader.(*caching); ok {
		c.written.Store(true)
	}
	if opts.HTTPClient == nil {
		var err error
		if opts.HTTPClient, err = rest.HTTPClientFor(cfg); err != nil {
			return nil, fmt.Errorf("cannot make client: %w", err)
		}
	}
	overlaid := *opts.HTTPClient
	overlaid.Transport = o.overlay(transportOf(opts.HTTPClient), stores)
	opts.HTTPClient = &overlaid
	c, err := client.New(cfg, opts)
	if err != nil || len(o.Drop) == 0 && len(o.DropManagedFields) == 0 {
		return c, err
	}
	return careful{c, o, stores}, nil
}

var errNotOurs = errors.New("the cache was not made by NewCache of this package, so that the client could not show " +
	"what it has written; set ctrl.Options.NewCache too, or Options.Stores")

// overlay returns a transport that applies the answers to writes to stores.
func (o Options) overlay(next http.RoundTripper, stores *store.Cache) http.RoundTripper {
	overlaid := fairlead.Overlay(next, stores, fairlead.OverlayOptions{Logger: o.Logger})
	if o.FilterOwnWrites {
		return owning{overlaid}
	}
	return overlaid
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
