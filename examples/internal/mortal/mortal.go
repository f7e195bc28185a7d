// Package mortal kills operators in the examples at one of their requests, before the request is sent or after its
// response. The effect is that of a crash: state that the operator has not sent to a server is lost.
package mortal

import (
	"net/http"
	"sync/atomic"
)

// refusal is the response to a request of a dead operator. Clients do not retry this status, so a dead operator stops
// soon.
func refusal(r *http.Request) *http.Response {
	return &http.Response{
		Status: "403 the operator is dead", StatusCode: http.StatusForbidden, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r,
	}
}

// Life is the life of one operator, which ends at a request. All transports of the operator must be wrapped by Wrap.
// A Life is safe for concurrent use.
type Life struct {
	at    int64
	after bool
	died  func(*http.Request)
	count atomic.Int64
	dead  atomic.Bool
}

// New returns a life that ends at the at-th request other than GET, or never if at is not positive. after says
// whether the server still receives that request. died is called before the request returns.
func New(at int64, after bool, died func(*http.Request)) *Life {
	return &Life{at: at, after: after, died: died}
}

// Dead reports whether the life has ended. No request of a dead operator reaches a server.
func (l *Life) Dead() bool { return l.dead.Load() }

// Wrap returns a transport that sends requests through next until the life ends.
func (l *Life) Wrap(next http.RoundTripper) http.RoundTripper { return transport{next, l} }

// transport wraps another transport. client-go finds that one by WrappedRoundTripper to close its idle connections.
type transport struct {
	next http.RoundTripper
	life *Life
}

func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	l := t.life
	if l.dead.Load() {
		return refusal(r), nil
	}
	last := r.Method != http.MethodGet && l.count.Add(1) == l.at
	if last && !l.after {
		l.dead.Store(true)
		l.died(r)
		return refusal(r), nil
	}
	response, err := t.next.RoundTrip(r)
	if last {
		l.dead.Store(true)
		l.died(r)
	}
	if err == nil && l.dead.Load() {
		response.Body.Close()
		return refusal(r), nil
	}
	return response, err
}
