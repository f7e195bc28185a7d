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

// OverlayOptions tune [Overlay]. The zero value works.
type OverlayOptions struct {
	// Server is the address at which requests reach the server of the cache, if it is another one than the cache itself
	// uses: scheme, host, and the path in front of those of the API, if there is one.
	Server *url.URL
	// Timeout bounds what it takes to have the cache show a write that cannot be laid over it; 10 s.
	Timeout time.Duration
	Logger  *slog.Logger
}

// Overlay returns a transport through which any program of client-go reads its own writes: it passes every request on
// to next, and lays the answers to writes over the stores of c before it returns them, so that the next read of a store
// shows them. Typed, dynamic and metadata clients and the client of controller-runtime are all given it the same way:
//
//	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
//		return client.Overlay(next, cache, client.OverlayOptions{})
//	})
//
// Requests and answers pass as they are, byte for byte. What is read of an answer, which is only that to a write of a
// resource that is watched, is kept until the caller has read it, too; one of more than 64 MiB is not looked at. A
// request that is no write costs nothing, and a write of what is not watched next to nothing.
//
// Creates, updates, patches and applies of objects and of their subresources, deletes and deletes of collections are
// recognised by method and path, and answers in JSON and in protobuf read, compressed or not. The object goes through
// the selectors and the content rules of each store. Where the answer is not the object as a store has it (a Scale, the
// metadata alone, a table, another version of the API), the store's watch has a tenth of a second to bring it; then the
// store asks the server for this one object, and RoundTrip returns after that. So it does, within a second, where the
// answer was lost and nobody knows whether the write was made; the error is the same. Where that fails, or the context
// of the request has ended, readers are told to ask the server ([cache.Store.Overdue], [cache.Store.Settle]).
//
// Nothing is laid over the stores of what changes nothing (dry runs, refusals), of requests as another user
// (impersonation), and of those to another server than that of c; see OverlayOptions.Server. That a delete is answered
// with 404 tells that the object is gone.
//
// Writes whose context has a binding ([Bind]) belong to its Write.Owner, as those of a [Client] do.
//
// next is http.DefaultTransport if it is nil. Without a cache Overlay returns next. The transport is safe for
// concurrent use if next is; it has no goroutine and need not be closed.
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

	sent sync.Map // *http.Request that was given → the one that was passed on, while it is under way
}

var _ utilnet.RoundTripperWrapper = (*overlay)(nil)

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *overlay) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections closes those of the transport beneath.
func (t *overlay) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(t.next) }

// CancelRequest has the transport beneath cancel a request, if it can.
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

// roundTrip sends a write and has it land.
func (w *overlayWrite) roundTrip() (*http.Response, error) {
	ctx := w.r.Context()
	if w.flight == nil {
		return w.pass(ctx)
	}
	defer w.flight.fail()          // of a transport that panics
	var asked, written atomic.Bool // a request that never got a connection has not been executed
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

// pass sends the request on.
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

// unavailable says that a server has refused a request before it looked at it.
func unavailable(res *http.Response) bool {
	return res.StatusCode == http.StatusNotImplemented ||
		res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != ""
}

// answered has a write land that was made.
func (w *overlayWrite) answered(ctx context.Context, res *http.Response) {
	f := w.flight
	if !f.join() {
		return
	}
	var head source.Header
	a := &reply{code: res.StatusCode}
	switch known, stream := mediaOf(res); {
	case stream && f.sub != "": // nobody knows when it ends, nor what it has to do with the object
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
	case w.unsure: // perhaps it was a dry run
		f.fail()
		f.settle(ctx, f.on, "")
	case w.deletes:
		f.deleted(ctx, a)
	default:
		f.land(ctx, a)
	}
}

// lost has a write end of which nobody knows whether it was made.
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

// saysAbsent tells "there is no such object" from the 404 of a path that nobody serves.
func saysAbsent(body []byte, name string) bool {
	var s metav1.Status
	a := read(http.StatusNotFound, body, &source.Header{})
	return a.status() && a.decode(&s) == nil && s.Reason == metav1.StatusReasonNotFound &&
		s.Details != nil && s.Details.Name == name
}
