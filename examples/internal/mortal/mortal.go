// Package mortal kills operators in the examples: at one of their requests, before it is sent or after it was answered,
// as a crash would, since what a program has not told anybody by a request is lost with it.
package mortal

import (
	"net/http"
	"sync/atomic"
)

// refusal answers a request of a dead operator. No client repeats a request after it, so that a dead operator soon gives
// up.
func refusal(r *http.Request) *http.Response {
	return &http.Response{
		Status: "403 the operator is dead", StatusCode: http.StatusForbidden, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: r,
	}
}

// Life is one of an operator, which ends at a request; all its transports go through Wrap. Safe for concurrent use.
type Life struct {
	at    int64
	after bool
	died  func(*http.Request)
	count atomic.Int64
	dead  atomic.Bool
}

// New returns a life that ends at the at-th request that is no GET, and never if at is not positive; after says whether
// that one still reaches its server. died is called then, before the request returns.
func New(at int64, after bool, died func(*http.Request)) *Life {
	return &Life{at: at, after: after, died: died}
}

// Dead says whether it has ended: nothing of it gets through any more.
func (l *Life) Dead() bool { return l.dead.Load() }

// Wrap returns a transport before another one.
func (l *Life) Wrap(next http.RoundTripper) http.RoundTripper { return transport{next, l} }

// transport is one before another, whose connections are found through it, and closed.
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
