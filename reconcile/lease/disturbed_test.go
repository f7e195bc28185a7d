package lease_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// voter is a candidate without controllers, whose requests are disturbed.
type voter struct {
	name  string
	lease *lease.Lease

	wire sync.WaitGroup

	mu   sync.Mutex
	rnd  *rand.Rand
	calm bool // no request is lost
	cut  bool // no request arrives
	slow bool // requests take seconds, and may still arrive after they were abandoned
	term context.Context
	led  int
}

func (v *voter) roundTrip(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	v.mu.Lock()
	fault, cut, wait := 9, v.cut, time.Duration(0)
	if !v.calm {
		fault = v.rnd.IntN(9)
	}
	if v.slow {
		wait = time.Duration(v.rnd.IntN(6000)) * time.Millisecond
	}
	v.mu.Unlock()
	send := func(r *http.Request) (*http.Response, error) {
		switch {
		case cut || fault == 0:
			return nil, disturb.ErrLost
		case fault == 1:
			answer, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			_, err = io.Copy(io.Discard, answer.Body)
			return nil, errors.Join(disturb.ErrLost, err, answer.Body.Close())
		}
		return next.RoundTrip(r)
	}
	if wait == 0 {
		return send(r)
	}
	late := r.Clone(context.WithoutCancel(r.Context())) // the server may execute a request that the caller has abandoned
	answered := make(chan func() (*http.Response, error), 1)
	v.wire.Go(func() {
		<-time.After(wait)
		answer, err := send(late)
		if err == nil { // the caller may be gone
			var body []byte
			body, err = io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			answer.Body = io.NopCloser(bytes.NewReader(body))
		}
		answered <- func() (*http.Response, error) { return answer, err }
	})
	select {
	case get := <-answered:
		return get()
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

func (v *voter) set(fn func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fn()
}

// work takes part in terms until ctx ends.
func (v *voter) work(ctx context.Context) {
	for {
		term, done, err := v.lease.Lead(ctx)
		if err != nil {
			return
		}
		v.set(func() { v.term, v.led = term, v.led+1 })
		<-term.Done()
		v.set(func() { v.term = nil })
		done()
	}
}

// leads reports whether the term lasts and whether it may send requests.
func (v *voter) leads() (leads, sends bool) {
	v.mu.Lock()
	term := v.term
	v.mu.Unlock()
	if term == nil {
		return false, false
	}
	return term.Err() == nil, v.lease.Fence(term) == nil
}

// TestDisturbedElections has three candidates compete for ten minutes. A fifth of their requests fails, others are
// slow, and candidates or the server pause longer than a lease lasts. Never do two candidates lead or send requests at
// the same time. Without faults one leads, and continues to.
func TestDisturbedElections(t *testing.T) {
	t.Parallel()
	seed.Play(t, 2, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { disturbedElections(t, seed) })
	})
}

func disturbedElections(t *testing.T, seed uint64) {
	server := testbed.Server(t, apiserver.Options{})
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var voters []*voter
	defer func() {
		stop()
		all.Wait()
		for _, v := range voters {
			v.wire.Wait()
		}
	}()
	for i, name := range []string{"one", "two", "three"} {
		v := &voter{name: name, rnd: rand.New(rand.NewPCG(seed, uint64(i)+1))}
		cfg := disturb.Config(server.Config(), v.roundTrip)
		var err error
		if v.lease, err = lease.New(cfg, lease.Options{Namespace: "a", Name: "gateways", Identity: name}); err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if err := v.lease.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { v.work(ctx) })
		voters = append(voters, v)
	}
	problem := func(format string, args ...any) {
		t.Errorf("FAIRLEAD_SEED=%d: %s", seed, fmt.Sprintf(format, args...))
	}
	watch := func(d time.Duration) (leader string) {
		for end := time.Now().Add(d); time.Now().Before(end) && !t.Failed(); testbed.Settle(50 * time.Millisecond) {
			leader = ""
			var leading, sending []string
			for _, v := range voters {
				leads, sends := v.leads()
				if leads {
					leading, leader = append(leading, v.name), v.name
				}
				if sends {
					sending = append(sending, v.name)
				}
			}
			if len(leading) > 1 || len(sending) > 1 {
				problem("%v lead and %v may send", leading, sending)
			}
		}
		return leader
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		affected := voters
		if n := rnd.IntN(4); n < len(voters) {
			affected = voters[n : n+1]
		}
		slow := rnd.IntN(2) == 0
		for _, v := range affected {
			v.set(func() { v.cut, v.slow = !slow, slow })
		}
		watch(time.Duration(rnd.IntN(30_000)) * time.Millisecond)
		for _, v := range affected {
			v.set(func() { v.cut, v.slow = false, false })
		}
		watch(time.Duration(rnd.IntN(10_000)) * time.Millisecond)
	}
	for _, v := range voters {
		v.set(func() { v.calm = true })
	}
	if leader := watch(30 * time.Second); leader == "" || watch(time.Minute) != leader {
		problem("nobody leads, or not for long: %q did", leader)
	}
	terms := 0
	for _, v := range voters {
		v.set(func() { terms += v.led })
	}
	if terms == 0 {
		problem("there was no term")
	}
	t.Logf("%d terms", terms)
}

// TestATermEndsBeforeAnother: a leader without any responses, neither to renewals nor to the release, ends before
// another candidate takes the lease.
func TestATermEndsBeforeAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testbed.Server(t, apiserver.Options{})
		defer server.Close()
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer stop()
		var hang sync.Map // the candidates whose requests get no response
		var voters []*voter
		for _, name := range []string{"one", "two"} {
			cfg := disturb.Config(server.Config(), func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				if _, hangs := hang.Load(name); hangs {
					<-r.Context().Done()
					return nil, context.Cause(r.Context())
				}
				return next.RoundTrip(r)
			})
			v := &voter{name: name}
			var err error
			if v.lease, err = lease.New(cfg, lease.Options{Namespace: "a", Name: "gateways", Identity: name}); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if err := v.lease.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() { v.work(ctx) })
			voters = append(voters, v)
		}
		for range 3 {
			testbed.Settle(30 * time.Second)
			for i, v := range voters {
				if leads, _ := v.leads(); !leads {
					continue
				}
				other := voters[1-i]
				hang.Store(v.name, true)
				for range 600 {
					testbed.Settle(100 * time.Millisecond)
					first, _ := v.leads()
					second, _ := other.leads()
					if first && second {
						t.Fatalf("%s and %s lead", v.name, other.name)
					}
				}
				if leads, _ := other.leads(); !leads {
					t.Fatalf("%s does not follow %s", other.name, v.name)
				}
				hang.Delete(v.name)
				break
			}
		}
	})
}

// TestALostTermStaysLost: a process that is stopped while its work continues loses the lease and gets it back after
// another one. The remaining work of its first term may send no requests.
func TestALostTermStaysLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testbed.Server(t, apiserver.Options{})
		defer server.Close()
		var all sync.WaitGroup
		defer all.Wait()
		candidate := func(name string) (*voter, context.CancelFunc) {
			v := &voter{name: name, calm: true}
			l, err := lease.New(disturb.Config(server.Config(), v.roundTrip), lease.Options{
				Namespace: "a", Name: "gateways", Identity: name, Drain: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
			v.lease = l
			ctx, stop := context.WithCancel(t.Context())
			all.Go(func() {
				if err := l.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			return v, stop
		}
		one, stopOne := candidate("one")
		defer stopOne()
		term, done, err := one.lease.Lead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		inner, end := context.WithCancel(term)
		defer end()
		stopOne()
		testbed.Settle(time.Minute)
		if err := one.lease.Fence(term); err != nil {
			t.Errorf("the remaining work may not send: %v", err)
		}
		one.set(func() { one.cut = true })
		two, stopTwo := candidate("two")
		defer stopTwo()
		_, doneTwo, err := two.lease.Lead(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		doneTwo()
		if err := one.lease.Fence(term); err == nil {
			t.Error("two candidates may send")
		}
		stopTwo()
		testbed.Settle(time.Second)
		one.set(func() { one.cut = false })
		testbed.Settle(time.Minute)
		if leader, err := one.lease.Status(); leader != "one" || err != nil {
			t.Fatalf("%q leads, %v", leader, err)
		}
		for _, ctx := range []context.Context{term, inner} {
			if err := one.lease.Fence(ctx); !errors.Is(err, lease.ErrLost) {
				t.Errorf("the work of a lost term may send: %v", err)
			}
		}
	})
}
