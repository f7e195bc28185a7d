package client

import (
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client/internal/overlay"
	"github.com/fairlead-io/fairlead/client/internal/pending"
)

// OverlayOptions configures [Overlay]. The zero value is ready to use.
type OverlayOptions struct {
	// Server is the address through which requests reach the server of the cache, if it differs from the one that the
	// cache uses. It has a scheme, a host, and optionally a path prefix of the API.
	Server *url.URL
	// Timeout bounds the time to bring the stores up to date with a write that cannot be stored; 10 s by default.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Overlay returns an http.RoundTripper that makes a client-go program read its own writes. It forwards every request to
// next. It adds the answers to writes to the stores of c before it returns them, so the next read sees them. Typed,
// dynamic and metadata clients and the client of controller-runtime use it in the same way:
//
//	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
//		return client.Overlay(next, cache, client.OverlayOptions{})
//	})
//
// Overlay does not change a byte of requests and answers. It buffers the answers to writes of watched resources until
// the caller has read them. It does not evaluate answers of more than 64 MiB. Requests that do not write have no
// overhead, and writes of resources that are not watched have little.
//
// Overlay recognises creates, updates, patches, applies and deletes of objects and subresources, and deletes of
// collections, by method and path. It reads answers in JSON and protobuf, also if compressed with gzip. The selectors
// and content rules of each store apply to the object.
//
// Some answers are not the object as a store holds it: a Scale, metadata alone, a table, or another version of the API.
// Then the store's watch has 0.1 s to deliver the object. After that the store reads this object from the server, and
// only then RoundTrip returns. If the answer was lost, the store also asks the server, for at most one second;
// RoundTrip returns the same error as next. If that fails, or the context of the request has ended, reads of the object
// ask the server ([cache.Store.Overdue], [cache.Store.Settle]).
//
// Overlay stores nothing for dry runs, refused requests, requests with impersonation, and requests to another server
// than that of c; see OverlayOptions.Server. A 404 for a delete means that the object is absent.
//
// Writes with the context of a reconciler are attributed to its controller, as those of a [Client] are.
//
// If next is nil, Overlay uses http.DefaultTransport. If c is nil, it returns next. The transport is safe for
// concurrent use if next is. It starts no goroutine and need not be closed.
func Overlay(next http.RoundTripper, c *cache.Cache, o OverlayOptions) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	server := c.Server()
	if server == nil {
		return next
	}
	if o.Server != nil {
		server = o.Server
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return overlay.New(next, server, pending.Writes{
		Stores:  func(r schema.GroupVersionResource) []*cache.Store { return inCache(c, r) },
		Timeout: orDefault(o.Timeout, 10*time.Second),
		Log:     o.Logger,
	})
}
