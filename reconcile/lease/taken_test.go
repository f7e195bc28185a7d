package lease

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// process is a candidate whose clock jumps when the process is paused.
type process struct {
	t      *testing.T
	server *apiserver.Server
	lease  *Lease
	jump   atomic.Int64
	reads  atomic.Int32  // the process is paused after this many reads of the renewal's clock; 0: never
	stuck  chan struct{} // closed at the end
	stop   func()
}

// run runs a candidate in a bubble. tap receives its requests.
func run(
	t *testing.T, tap func(*process, *http.Request, http.RoundTripper) (*http.Response, error), test func(*process),
) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &process{t: t, server: testbed.Server(t, apiserver.Options{}), stuck: make(chan struct{})}
		defer p.server.Close()
		cfg := p.server.Config()
		if tap != nil {
			cfg = disturb.Config(cfg, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				return tap(p, r, next)
			})
		}
		l, err := New(cfg, Options{Namespace: "a", Name: "x", Identity: "me"})
		if err != nil {
			t.Fatal(err)
		}
		p.lease = l
		now := func() time.Time { return time.Now().Add(time.Duration(p.jump.Load())) }
		l.claim.Clock.Now = now
		l.renewal.Clock.Now = func() time.Time {
			now := now()
			if p.reads.Load() > 0 && p.reads.Add(-1) == 0 {
				p.pause(time.Minute)
			}
			return now
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		p.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
		defer p.stop()
		defer close(p.stuck)
		test(p)
	})
}

func (p *process) pause(d time.Duration) { p.jump.Add(int64(d)) }

// lead returns the current term, or nil.
func (p *process) lead() context.Context {
	p.lease.mu.Lock()
	defer p.lease.mu.Unlock()
	if p.lease.term == nil {
		return nil
	}
	return p.lease.term
}

func (p *process) give(holder string) {
	p.t.Helper()
	if _, err := p.server.Change(leases, "a", "x", func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, holder, "spec", "holderIdentity")
	}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) holder() string {
	p.t.Helper()
	u, err := p.server.Object(leases, "a", "x")
	if err != nil {
		p.t.Fatal(err)
	}
	holder, _, _ := unstructured.NestedString(u.Object, "spec", "holderIdentity")
	return holder
}

// TestTaken: a process that finds that another process has held the lease begins a new term. This holds even if the
// lease is free again. Its old term has ended.
func TestTaken(t *testing.T) {
	t.Parallel()
	remove := func(p *process) { _ = p.server.Remove(leases, "a", "x") }
	for name, tc := range map[string]struct {
		reason  string
		happens func(*process)
		lost    bool // the first term has ended
		leads   bool
	}{
		"Own":     {reason: "no other process has held the lease", happens: func(p *process) { p.give("me") }, leads: true},
		"Another": {reason: "another process leads", happens: func(p *process) { p.give("other") }, lost: true},
		"Given back": {
			reason: "another process has led and ended", happens: func(p *process) { p.give("") }, lost: true, leads: true,
		},
		"Deleted": {
			reason: "the Lease was deleted just now: no other process can have led since", happens: remove, leads: true,
		},
		"Deleted old": {
			reason:  "the deleted Lease may have been that of another process",
			happens: func(p *process) { remove(p); p.pause(time.Minute) }, lost: true, leads: true,
		},
		"Paused": {
			reason: "the hold has expired", happens: func(p *process) { p.pause(13 * time.Second) }, lost: true, leads: true,
		},
		"Paused a bit": {reason: "others still wait", happens: func(p *process) { p.pause(10 * time.Second) }, leads: true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(p *process) {
				testbed.Settle(5 * time.Second)
				term := p.lead()
				if term == nil || p.lease.Fence(term) != nil {
					t.Fatal("the process does not lead")
				}
				tc.happens(p)
				testbed.Settle(5 * time.Second)
				if lost := term.Err() != nil; lost != tc.lost {
					t.Errorf("%s: the term was lost: %t", tc.reason, lost)
				}
				if tc.lost && (!errors.Is(context.Cause(term), ErrLost) || !errors.Is(p.lease.Fence(term), ErrLost)) {
					t.Errorf("%s: the term ended with %v", tc.reason, context.Cause(term))
				}
				if now := p.lead(); (now != nil) != tc.leads || now != nil && (now == term) == tc.lost {
					t.Errorf("%s: the process leads: %t, in the same term: %t", tc.reason, now != nil, now == term)
				}
			})
		})
	}
}

// TestReleasedByItsHolderOnly: a process that was paused for long releases its lease. That must not release the lease
// of a successor.
func TestReleasedByItsHolderOnly(t *testing.T) {
	t.Parallel()
	for holder, want := range map[string]string{"me": "", "other": "other"} {
		t.Run(holder, func(t *testing.T) {
			run(t, nil, func(p *process) {
				testbed.Settle(5 * time.Second)
				p.give(holder)
				p.stop()
				if got := p.holder(); got != want {
					t.Errorf("held by %s and released: it is held by %q", holder, got)
				}
			})
		})
	}
}

// TestLateResponseBeginsNoTerm: a process was paused while it acquired the lease. When it sees the response, another
// process may hold the lease.
func TestLateResponseBeginsNoTerm(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		took time.Duration
		want bool
	}{
		"InTime": {took: 12 * time.Second, want: true},
		"Late":   {took: 13 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			var created atomic.Bool
			run(t, func(p *process, r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if created.Load() {
					return nil, disturb.ErrLost
				}
				answer, err := next.RoundTrip(r)
				if r.Method == http.MethodPost {
					created.Store(true)
					p.pause(tc.took)
				}
				return answer, err
			}, func(p *process) {
				testbed.Settle(100 * time.Millisecond)
				if term := p.lead(); (term != nil) != tc.want {
					t.Errorf("after %v a term has begun: %t", tc.took, term != nil)
				}
				if age, held := p.lease.renewal.Age(); held && age < tc.took {
					t.Errorf("the renewal is reported as %v old", age)
				}
				testbed.Settle(time.Second)
				if _, held := p.lease.renewal.Age(); held || p.lead() != nil {
					t.Error("the lease is held for too long")
				}
			})
		})
	}
}

// TestTermThatExpiresAtItsStart: a process is paused between the check that its hold is fresh and the start of the
// term. The term ends.
func TestTermThatExpiresAtItsStart(t *testing.T) {
	var created atomic.Bool
	run(t, func(p *process, r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if created.Load() {
			return nil, disturb.ErrLost
		}
		answer, err := next.RoundTrip(r)
		if r.Method == http.MethodPost {
			created.Store(true)
			p.reads.Store(1) // by Fresh
		}
		return answer, err
	}, func(p *process) {
		testbed.Settle(time.Second)
		if p.lease.last == nil {
			t.Error("no term has begun: the test pauses at the wrong place")
		} else if p.lead() != nil || p.lease.last.Err() == nil {
			t.Error("the term has not ended")
		}
	})
}

// TestATermEndsDuringAStuckRequest: a renewal that ignores the end of its context does not extend the term.
func TestATermEndsDuringAStuckRequest(t *testing.T) {
	run(t, func(p *process, r *http.Request, next http.RoundTripper) (*http.Response, error) {
		if r.Method == http.MethodPut {
			<-p.stuck
			return nil, disturb.ErrLost
		}
		return next.RoundTrip(r)
	}, func(p *process) {
		testbed.Settle(12 * time.Second)
		if p.lead() == nil {
			t.Error("the term has ended early")
		}
		testbed.Settle(time.Second)
		if p.lead() != nil {
			t.Error("the term has not ended")
		}
	})
}
