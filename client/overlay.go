package client

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
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
	return &overlay{
		next: next, server: server,
		layer: layer{
			stores:  func(r schema.GroupVersionResource) []*cache.Store { return inCache(c, r) },
			timeout: orDefault(o.Timeout, 10*time.Second),
			log:     o.Logger,
		},
	}
}

// overlay is the transport that Overlay returns.
type overlay struct {
	next   http.RoundTripper
	server *url.URL
	layer  layer

	sent sync.Map // *http.Request from the caller → forwarded copy, while in progress
}

var _ utilnet.RoundTripperWrapper = (*overlay)(nil)

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *overlay) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections closes the idle connections of the wrapped transport.
func (t *overlay) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(t.next) }

// CancelRequest cancels a request in the wrapped transport, if that supports it.
func (t *overlay) CancelRequest(r *http.Request) {
	if passed, ok := t.sent.Load(r); ok {
		r = passed.(*http.Request)
	}
	for next := t.next; next != nil; {
		if c, ok := next.(interface{ CancelRequest(*http.Request) }); ok {
			c.CancelRequest(r)
			return
		}
		w, ok := next.(utilnet.RoundTripperWrapper)
		if !ok {
			return
		}
		next = w.WrappedRoundTripper()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *overlay) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return t.write(r).roundTrip()
	}
	return t.next.RoundTrip(r)
}

// roundTrip sends a write and stores its answer.
func (w *overlayWrite) roundTrip() (*http.Response, error) {
	ctx := w.r.Context()
	if w.flight == nil {
		return w.pass(ctx)
	}
	defer w.flight.fail()          // if the transport panics
	var asked, written atomic.Bool // a request that never got a connection was not executed
	res, err := w.pass(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { asked.Store(true) },
		WroteHeaders: func() { written.Store(true) },
	}))
	dial, _ := errors.AsType[*net.OpError](err)
	switch {
	case err != nil && (asked.Load() && !written.Load() || dial != nil && dial.Op == "dial"):
		w.flight.fail()
	case err != nil:
		w.lost(ctx)
	case res.StatusCode == http.StatusNotFound && w.deletes && w.flight.sub == "" && w.flight.join():
		if body, err := readAnswer(res); err == nil && saysAbsent(body, w.flight.key.Name) {
			w.flight.absent(ctx)
		}
	case res.StatusCode >= http.StatusInternalServerError && !unavailable(res):
		w.lost(ctx)
	case res.StatusCode >= http.StatusOK && res.StatusCode < http.StatusMultipleChoices:
		w.answered(ctx, res)
	}
	return res, err
}

// pass forwards the request to the wrapped transport.
func (w *overlayWrite) pass(ctx context.Context) (*http.Response, error) {
	r := w.body.attach(w.r.WithContext(ctx))
	w.t.sent.Store(w.r, r)
	defer w.t.sent.Delete(w.r)
	res, err := w.t.next.RoundTrip(r)
	if res != nil && res.Request == r {
		res.Request = w.r
	}
	return res, err
}

// unavailable reports whether the server refused a request before it processed it.
func unavailable(res *http.Response) bool {
	return res.StatusCode == http.StatusNotImplemented ||
		res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != ""
}

// answered stores the answer to a successful write.
func (w *overlayWrite) answered(ctx context.Context, res *http.Response) {
	f := w.flight
	if !f.join() {
		return
	}
	var head source.Header
	a := &reply{code: res.StatusCode}
	switch known, stream := mediaOf(res); {
	case stream && f.sub != "": // may never end, and need not concern the object
		return
	case known:
		body, err := readAnswer(res)
		if err != nil && !errors.Is(err, errUnread) {
			w.lost(ctx)
			return
		}
		if err == nil {
			a = read(res.StatusCode, body, &head)
		}
	}
	if f.key.Name == "" && !w.collection && (!a.readable() || len(head.Name) == 0) {
		f.key.Name = w.body.name()
	}
	switch {
	case w.collection:
		w.cleared(ctx, a, f.timeout)
	case w.unsure: // may be a dry run
		f.fail()
		f.settle(ctx, f.on, "")
	case w.deletes:
		f.deleted(ctx, a)
	default:
		f.land(ctx, a)
	}
}

// lost ends a write that may or may not have been made.
func (w *overlayWrite) lost(ctx context.Context) {
	f := w.flight
	if w.collection {
		w.cleared(ctx, &reply{}, lostPatience)
		return
	}
	if f.key.Name == "" {
		f.key.Name = w.body.name()
	}
	f.lost(ctx)
}

// saysAbsent distinguishes the 404 for an absent object from the 404 for an unknown path.
func saysAbsent(body []byte, name string) bool {
	var s metav1.Status
	a := read(http.StatusNotFound, body, &source.Header{})
	return a.status() && a.decode(&s) == nil && s.Reason == metav1.StatusReasonNotFound &&
		s.Details != nil && s.Details.Name == name
}
