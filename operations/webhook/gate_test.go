package webhook_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

func limited(t *testing.T, change func(*webhook.Definition)) *webhook.Compiled {
	t.Helper()
	d := webhook.Definition{Namespace: "ns", Name: "hook", Request: webhook.Request{URL: "http://127.0.0.1:1/"}}
	change(&d)
	return compile(t, d)
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, webhook.Options{})
		hook := limited(t, func(d *webhook.Definition) { d.Concurrency = 2 })
		first, _ := client.Acquire(hook, "1", nil)
		second, _ := client.Acquire(hook, "2", nil)
		if first == nil || second == nil {
			t.Fatal("two of two are refused")
		}
		var woken []string
		wait := func(id string) *webhook.Permit {
			t.Helper()
			p, w := client.Acquire(hook, id, func() { woken = append(woken, id) })
			if p == nil && (w.Reason != webhook.WaitConcurrency || w.For <= 0) {
				t.Fatalf("%s: %+v", id, w)
			}
			return p
		}
		for _, id := range []string{"3", "4", "5"} {
			if wait(id) != nil {
				t.Fatalf("%s passes", id)
			}
		}
		first.Release()
		first.Release() // a second Release has no effect
		if fmt.Sprint(woken) != "[3]" {
			t.Fatalf("woken: %v, want 3, which came first", woken)
		}
		if wait("6") != nil {
			t.Fatal("a new caller takes the place reserved for a waiter")
		}
		third := wait("3")
		if third == nil {
			t.Fatal("a woken caller does not pass")
		}
		second.Release()
		time.Sleep(3 * time.Second) // 4 was woken and does not ask
		if wait("5") == nil {
			t.Fatalf("the place of a caller that does not return is lost; woken: %v", woken)
		}
		client.Withdraw(hook, "4")
		third.Release()
		if wait("6") == nil {
			t.Fatalf("6 is not next; woken: %v", woken)
		}
	})
}

// TestConcurrencyProperty: calls never exceed the limit, and every caller that keeps asking gets through.
func TestConcurrencyProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		client, err := webhook.New(webhook.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		defer client.Close()
		limit := rapid.IntRange(1, 4).Draw(rt, "limit")
		hook, err := webhook.Compile(webhook.Definition{
			Name: "h", Concurrency: limit, Request: webhook.Request{URL: "http://x"},
		})
		if err != nil {
			rt.Fatal(err)
		}
		held, waiting := map[string]*webhook.Permit{}, map[string]bool{}
		for step := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			id := fmt.Sprint(rapid.IntRange(0, 8).Draw(rt, "id"))
			switch {
			case held[id] != nil:
				held[id].Release()
				delete(held, id)
			case rapid.IntRange(0, 9).Draw(rt, "withdraw") == 0:
				client.Withdraw(hook, id)
				delete(waiting, id)
			default:
				if p, _ := client.Acquire(hook, id, nil); p != nil {
					held[id] = p
					delete(waiting, id)
				} else {
					waiting[id] = true
				}
			}
			if len(held) > limit {
				rt.Fatalf("step %d: %d permits of %d", step, len(held), limit)
			}
		}
		for len(held)+len(waiting) > 0 {
			before := len(held) + len(waiting)
			for id, p := range held {
				p.Release()
				delete(held, id)
			}
			for id := range waiting {
				if p, _ := client.Acquire(hook, id, nil); p != nil {
					held[id] = p
					delete(waiting, id)
				}
			}
			if len(held) == 0 && len(held)+len(waiting) == before {
				rt.Fatalf("no caller gets through: %v", waiting)
			}
		}
	})
}

func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, webhook.Options{})
		hook := limited(t, func(d *webhook.Definition) { d.RatePerSecond = 4 })
		started := time.Now()
		var mu sync.Mutex
		var starts []time.Duration
		var asked atomic.Int32
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for {
					asked.Add(1)
					p, wait := client.Acquire(hook, fmt.Sprint(i), nil)
					if p != nil {
						p.Release()
						break
					}
					if wait.Reason != webhook.WaitRate {
						t.Errorf("%+v", wait)
					}
					time.Sleep(wait.For)
				}
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, time.Since(started))
			})
		}
		wg.Wait()
		if last := starts[len(starts)-1]; last != 11*250*time.Millisecond {
			t.Errorf("the last of 12 starts after %v", last)
		}
		if asked.Load() > 23 {
			t.Errorf("%d requests for 12 turns: waiters do not keep their turn", asked.Load())
		}
	})
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(int(status.Load())) })
	var mu sync.Mutex
	var changes []webhook.BreakerState
	client := newClient(t, webhook.Options{OnBreaker: func(ns, name string, s webhook.BreakerStatus) {
		mu.Lock()
		defer mu.Unlock()
		if ns != "ns" || name != "hook" {
			t.Errorf("%s/%s changes", ns, name)
		}
		changes = append(changes, s.State)
	}})
	const openFor = 100 * time.Millisecond
	hook := limited(t, func(d *webhook.Definition) {
		d.Request.URL = server.URL
		d.Breaker = webhook.Breaker{Failures: 3, OpenFor: openFor}
	})
	try := func(code int, want webhook.BreakerState) {
		t.Helper()
		status.Store(int32(code))
		permit(t, client, hook).Call(t.Context(), aCall())
		if got := client.Breaker("ns", "hook"); got.State != want {
			t.Fatalf("after %d: %+v, want %s", code, got, want)
		}
	}
	// untilHalfOpen waits as long as the gate says.
	untilHalfOpen := func() *webhook.Permit {
		t.Helper()
		for {
			p, wait := client.Acquire(hook, "id", nil)
			if p != nil {
				return p
			}
			if wait.Reason != webhook.WaitBreaker || wait.For > 2*openFor {
				t.Fatalf("%+v", wait)
			}
			<-time.After(wait.For)
		}
	}
	try(500, webhook.Closed)
	try(503, webhook.Closed)
	try(200, webhook.Closed) // not consecutive
	try(500, webhook.Closed)
	try(404, webhook.Closed) // an answer of a healthy endpoint
	try(500, webhook.Closed)
	try(500, webhook.Closed)
	before := time.Now()
	try(500, webhook.Open)
	after := time.Now()
	if got := client.Breakers(); got[webhook.Open] != 1 || got[webhook.Closed]+got[webhook.HalfOpen] != 0 ||
		len(got) != 3 {
		t.Errorf("the breakers are %v", got)
	}
	if got := client.Breaker("ns", "hook"); got.Until.Before(before.Add(openFor)) ||
		got.Until.After(after.Add(openFor)) || got.Failures != 3 {
		t.Errorf("%+v, which failed between %v and %v", got, before, after)
	}
	probe := untilHalfOpen()
	if got := client.Breaker("ns", "hook"); got.State != webhook.HalfOpen {
		t.Errorf("%+v", got)
	}
	if p, wait := client.Acquire(hook, "other", nil); p != nil || wait.Reason != webhook.WaitBreaker || wait.For <= 0 {
		t.Errorf("a second call while the first decides: %+v", wait)
	}
	probe.Call(t.Context(), aCall()) // still 500
	if got := client.Breaker("ns", "hook"); got.State != webhook.Open {
		t.Errorf("%+v", got)
	}
	probe = untilHalfOpen()
	probe.Release() // unused, so the next permit decides
	probe = untilHalfOpen()
	status.Store(200)
	probe.Call(t.Context(), aCall())
	if got := client.Breaker("ns", "hook"); got.State != webhook.Closed || got.Failures != 0 {
		t.Errorf("%+v", got)
	}
	mu.Lock()
	defer mu.Unlock()
	want := []webhook.BreakerState{webhook.Open, webhook.HalfOpen, webhook.Open, webhook.HalfOpen, webhook.Closed}
	if fmt.Sprint(changes) != fmt.Sprint(want) {
		t.Errorf("changes %v, want %v", changes, want)
	}
	client.Forget("ns", "hook")
	if got := client.Breaker("ns", "hook"); got.State != webhook.Closed {
		t.Errorf("forgotten: %+v", got)
	}
}

// TestBreakerForgetsCallsFromBefore: calls that started before the breaker opened may fail after it has closed again.
// They do not count.
func TestBreakerForgetsCallsFromBefore(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	slow := make(chan struct{})
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Correlation-ID") == "slow" {
			<-slow
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(int(status.Load()))
	})
	client := newClient(t, webhook.Options{})
	const failures = 2
	hook := limited(t, func(d *webhook.Definition) {
		d.Request.URL = server.URL
		d.Breaker = webhook.Breaker{Failures: failures, OpenFor: time.Millisecond}
	})
	var calls sync.WaitGroup
	for range failures {
		p := permit(t, client, hook)
		calls.Go(func() {
			call := aCall()
			call.CorrelationID = "slow"
			p.Call(t.Context(), call)
		})
	}
	status.Store(http.StatusServiceUnavailable)
	for range failures {
		permit(t, client, hook).Call(t.Context(), aCall())
	}
	if got := client.Breaker("ns", "hook"); got.State != webhook.Open {
		t.Errorf("%+v", got)
	}
	status.Store(http.StatusOK)
	for client.Breaker("ns", "hook").State != webhook.Closed {
		p, wait := client.Acquire(hook, "id", nil)
		if p == nil {
			<-time.After(wait.For)
			continue
		}
		p.Call(t.Context(), aCall())
	}
	close(slow)
	calls.Wait()
	if got := client.Breaker("ns", "hook"); got.State != webhook.Closed || got.Failures != 0 {
		t.Errorf("failures from before count against an endpoint that is well again: %+v", got)
	}
}
