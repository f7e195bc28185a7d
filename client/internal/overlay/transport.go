package overlay

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/source"
)

// New returns a transport that forwards requests to next, and adds the answers to writes that reach server to the
// stores of writes. All fields of writes but Changed must be set.
func New(next http.RoundTripper, server *url.URL, writes pending.Writes) http.RoundTripper {
	return &transport{next: next, server: server, writes: writes}
}

// transport is the http.RoundTripper that New returns.
type transport struct {
	next   http.RoundTripper
	server *url.URL
	writes pending.Writes

	sent sync.Map // *http.Request from the caller → forwarded copy, while in progress
}

var _ utilnet.RoundTripperWrapper = (*transport)(nil)

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections closes the idle connections of the wrapped transport.
func (t *transport) CloseIdleConnections() { utilnet.CloseIdleConnectionsFor(t.next) }

// CancelRequest cancels a request in the wrapped transport, if that supports it.
func (t *transport) CancelRequest(r *http.Request) {
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
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return t.begin(r).roundTrip()
	}
	return t.next.RoundTrip(r)
}

// roundTrip sends a write and stores its answer.
func (w *write) roundTrip() (*http.Response, error) {
	ctx := w.r.Context()
	if w.pending == nil {
		return w.pass(ctx)
	}
	defer w.pending.Refused()      // if the transport panics
	var asked, written atomic.Bool // a request that never got a connection was not executed
	res, err := w.pass(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { asked.Store(true) },
		WroteHeaders: func() { written.Store(true) },
	}))
	dial, _ := errors.AsType[*net.OpError](err)
	switch {
	case err != nil && (asked.Load() && !written.Load() || dial != nil && dial.Op == "dial"):
		w.pending.Refused()
	case err != nil:
		w.lost(ctx)
	case res.StatusCode == http.StatusNotFound && w.deletes && w.pending.Subresource == "" && w.pending.Watched():
		if body, err := readAnswer(res); err == nil && saysAbsent(body, w.pending.Key.Name) {
			w.pending.Absent(ctx)
		}
	case res.StatusCode >= http.StatusInternalServerError && !unavailable(res):
		w.lost(ctx)
	case res.StatusCode >= http.StatusOK && res.StatusCode < http.StatusMultipleChoices:
		w.answered(ctx, res)
	}
	return res, err
}

// pass forwards the request to the wrapped transport.
func (w *write) pass(ctx context.Context) (*http.Response, error) {
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
func (w *write) answered(ctx context.Context, res *http.Response) {
	p := w.pending
	if !p.Watched() {
		return
	}
	var head source.Header
	a := pending.Unknown(res.StatusCode)
	switch known, stream := mediaOf(res); {
	case stream && p.Subresource != "": // may never end, and need not concern the object
		return
	case known:
		body, err := readAnswer(res)
		if err != nil && !errors.Is(err, errUnread) {
			w.lost(ctx)
			return
		}
		if err == nil {
			a = pending.Read(res.StatusCode, body, &head)
		}
	}
	if p.Key.Name == "" && !w.collection && (!a.Readable() || len(head.Name) == 0) {
		p.Key.Name = w.body.name()
	}
	switch {
	case w.collection:
		p.Cleared(ctx, a, w.before, w.t.writes.Timeout)
	case w.unsure: // may be a dry run
		p.Unsure(ctx)
	case w.deletes:
		p.Deleted(ctx, a)
	default:
		p.Answered(ctx, a)
	}
}

// lost ends a write that may or may not have been made.
func (w *write) lost(ctx context.Context) {
	if w.collection {
		w.pending.Cleared(ctx, pending.Unknown(0), w.before, pending.LostTimeout)
		return
	}
	if w.pending.Key.Name == "" {
		w.pending.Key.Name = w.body.name()
	}
	w.pending.Lost(ctx)
}

// saysAbsent distinguishes the 404 for an absent object from the 404 for an unknown path.
func saysAbsent(body []byte, name string) bool {
	var s metav1.Status
	a := pending.Read(http.StatusNotFound, body, &source.Header{})
	return a.Status() && a.Decode(&s) == nil && s.Reason == metav1.StatusReasonNotFound &&
		s.Details != nil && s.Details.Name == name
}
