package apiserver

import (
	"context"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Match selects requests. An empty field matches everything.
type Match struct {
	// Verb is get, list, watch, create, update, patch, delete or deletecollection. For paths that name no resource it
	// is the HTTP method in lower case.
	Verb string
	// Group, Resource and Subresource are those of the path. Group "core" means the core group.
	Group, Resource, Subresource string
	Namespace, Name              string
	// Page selects one page of a list: 1 is a request without a continue token, 2 the one after it, and so on.
	Page int
	// Func, if set, decides about requests that match all other fields. It is called without locks and must not modify
	// the request.
	Func func(Request) bool

	// Nth and Times are used only by Server.On. Nth > 0 selects only the nth matching request, counted from 1 since the
	// creation of the rule. Times > 0 selects only the first Times matching requests.
	Nth, Times int
}

func (m Match) matches(r *Request) bool {
	field := func(want, have string) bool { return want == "" || want == have }
	group := r.Group
	if group == "" {
		group = "core"
	}
	return field(m.Verb, r.Verb) && field(m.Group, group) && field(m.Resource, r.Resource) &&
		field(m.Subresource, r.Subresource) &&
		field(m.Namespace, r.Namespace) && field(m.Name, r.Name) && (m.Page == 0 || m.Page == r.Page) &&
		(m.Func == nil || m.Func(*r))
}

// Fault changes the treatment of one request. All faults of all matching rules apply; if they contradict each other,
// the last one wins.
type Fault struct{ apply func(*plan) }

// Rule is a rule made by Server.On. Its methods are safe for concurrent use.
type Rule struct {
	match  Match
	faults []Fault

	mu         sync.Mutex
	seen, hits int
	off        bool
}

// Off ends the rule. It does not affect requests that the rule has already changed.
func (r *Rule) Off() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.off = true
}

// Hits returns the number of requests that the rule has changed.
func (r *Rule) Hits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.hits
}

func (r *Rule) take(req *Request) bool {
	if !r.match.matches(req) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	if r.off || r.match.Nth > 0 && r.seen != r.match.Nth || r.match.Times > 0 && r.hits >= r.match.Times {
		return false
	}
	r.hits++
	return true
}

// On adds a rule that applies the faults to matching requests. Rules apply in the order of their creation.
func (s *Server) On(m Match, faults ...Fault) *Rule {
	r := &Rule{match: m, faults: faults}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, r)
	return r
}

// ClearFaults ends all rules.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		r.Off()
	}
	s.rules = nil
}

func (s *Server) planFor(req *Request) *plan {
	s.mu.Lock()
	rules := append([]*Rule(nil), s.rules...)
	s.mu.Unlock()
	p := &plan{cut: -1, watch: watchFaults{endAfter: -1}, list: listFaults{keep: -1}}
	for _, r := range rules {
		if r.take(req) {
			for _, f := range r.faults {
				f.apply(p)
			}
		}
	}
	return p
}

// plan is the combination of the faults of one request.
type plan struct {
	before, after         []func(context.Context, Request)
	blackHole, goAway     bool
	dropBefore, dropAfter bool
	answer                *metav1.Status
	respond               *response
	query                 []func(url.Values)
	cut                   int64 // bytes of the body, -1: all
	fragments             []int
	dripBytes             int
	dripEvery             time.Duration
	rewrite               []func([]byte) []byte
	list                  listFaults
	watch                 watchFaults
}

type response struct {
	code        int
	contentType string
	header      map[string]string
	body        []byte
}

type listFaults struct {
	empty, duplicate, noVersion, expireContinue, noInconsistent bool
	keep                                                        int // items kept, -1: all
	at                                                          uint64
}

type watchFaults struct {
	silent, noBookmarks, ignoreTimeout bool
	noInitialEnd, plainInitialEnd      bool
	noList                             bool // the server does not know WatchList
	endAfter                           int  // events after which the stream ends, -1: never
	errorAfter                         int
	errorEvent                         *metav1.Status
	duplicate                          bool
	replay                             int
}

// Before runs fn when the request has arrived and before it is processed. fn may use the server.
func Before(fn func(context.Context, Request)) Fault {
	return Fault{func(p *plan) { p.before = append(p.before, fn) }}
}

// After runs fn after the request has been executed, before the first byte of the answer. fn may use the server.
func After(fn func(context.Context, Request)) Fault {
	return Fault{func(p *plan) { p.after = append(p.after, fn) }}
}

// HoldRequest holds requests at the gate before they are processed.
func HoldRequest(g *Gate) Fault {
	return Before(func(ctx context.Context, _ Request) { g.pass(ctx) })
}

// HoldResponse holds answers at the gate: the request has been executed, but no byte has been sent.
func HoldResponse(g *Gate) Fault {
	return After(func(ctx context.Context, _ Request) { g.pass(ctx) })
}

// Delay delays a request before it is processed.
func Delay(d time.Duration) Fault {
	return Before(func(ctx context.Context, _ Request) { sleep(ctx, d) })
}

// Drop closes the connection without an answer before the request is executed. With HTTP/2 it resets only the stream.
// Note that Go's HTTP client automatically repeats a GET when the server closes a reused connection.
func Drop() Fault { return Fault{func(p *plan) { p.dropBefore = true }} }

// DropAfter executes the request and then closes the connection without an answer. The write has happened, but the
// client cannot know that.
func DropAfter() Fault { return Fault{func(p *plan) { p.dropAfter = true }} }

// BlackHole accepts the request and never answers.
func BlackHole() Fault { return Fault{func(p *plan) { p.blackHole = true }} }

// GoAway closes the connection after its open requests have ended, as a server does before it stops or to rebalance
// clients. It uses GOAWAY with HTTP/2 and "Connection: close" with HTTP/1.1.
func GoAway() Fault { return Fault{func(p *plan) { p.goAway = true }} }

// Cut sends n bytes of the body and then closes the connection, possibly in the middle of a frame.
func Cut(n int64) Fault { return Fault{func(p *plan) { p.cut = n }} }

// Fragment sends the body in pieces of these sizes, in turn, and flushes each: Fragment(1) sends single bytes.
func Fragment(sizes ...int) Fault { return Fault{func(p *plan) { p.fragments = sizes }} }

// Drip sends n bytes of the body, waits, sends the next n bytes, and so on.
func Drip(n int, every time.Duration) Fault {
	return Fault{func(p *plan) { p.dripBytes, p.dripEvery = n, every }}
}

// Rewrite modifies the bytes to send: a whole body, or each frame of a watch. fn owns its argument.
func Rewrite(fn func([]byte) []byte) Fault {
	return Fault{func(p *plan) { p.rewrite = append(p.rewrite, fn) }}
}

// Query modifies the query of the request before the server reads it.
func Query(fn func(url.Values)) Fault {
	return Fault{func(p *plan) { p.query = append(p.query, fn) }}
}

// sleep waits unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
