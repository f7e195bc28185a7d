package controllerruntime

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairlead-io/fairlead/internal/store"
)

// overlaid is the transport that NewCache puts around the transport of an HTTP client. Writes through the HTTP client
// are then visible at once in every cache that was made with it, whichever client sends them.
type overlaid struct {
	plain http.RoundTripper                 // the transport before
	chain atomic.Pointer[http.RoundTripper] // plain below the overlay of each cache

	mu     sync.Mutex
	caches []overlay // one for each cache of controller-runtime; caches may share stores
}

// overlay is the part of one cache.
type overlay struct {
	stores *store.Cache
	around func(http.RoundTripper) http.RoundTripper
}

// overlaidBy returns the overlaid transport of an HTTP client. If the client has none yet and may be changed, it gets
// one. Otherwise the result is nil.
func overlaidBy(c *http.Client, change bool) *overlaid {
	if o, ok := c.Transport.(*overlaid); ok {
		return o
	}
	if !change || c == http.DefaultClient { // which belongs to the whole program
		return nil
	}
	o := &overlaid{plain: transportOf(c)}
	o.chain.Store(&o.plain)
	c.Transport = o
	return o
}

// RoundTrip implements http.RoundTripper.
func (o *overlaid) RoundTrip(r *http.Request) (*http.Response, error) {
	return (*o.chain.Load()).RoundTrip(r)
}

// CloseIdleConnections closes those of the underlying transport.
func (o *overlaid) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(o.plain) }

// WrappedRoundTripper returns the underlying transport.
func (o *overlaid) WrappedRoundTripper() http.RoundTripper { return o.plain }

// add makes writes visible in the stores of a cache, until remove is called.
func (o *overlaid) add(x overlay) (remove func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.caches = append(o.caches, x)
	o.rebuildLocked()
	return sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		i := slices.IndexFunc(o.caches, func(y overlay) bool { return y.stores == x.stores })
		o.caches = slices.Delete(o.caches, i, i+1)
		o.rebuildLocked()
	})
}

// rebuildLocked makes a chain with one overlay for each store cache.
func (o *overlaid) rebuildLocked() {
	next := o.plain
	for i, x := range o.caches {
		if !slices.ContainsFunc(o.caches[:i], func(y overlay) bool { return y.stores == x.stores }) {
			next = x.around(next)
		}
	}
	o.chain.Store(&next)
}

// stores returns the store caches in which writes are visible.
func (o *overlaid) stores() (all []*store.Cache) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.caches {
		if !slices.Contains(all, x.stores) {
			all = append(all, x.stores)
		}
	}
	return all
}
