package fair

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// newBudget returns a budget without a bound across namespaces.
func newBudget(rate, most Price, short func(namespace string)) *Budget {
	return NewBudget(BudgetOptions{Rate: rate, Most: most, Short: short})
}

// spending records the order and time of each request.
type spending struct {
	b     *Budget
	begun time.Time
	mu    sync.Mutex
	order []string
}

func (s *spending) ask(who Party, key string, cost Price, urgent bool) bool {
	_, ok := s.b.Acquire(who, key, cost, urgent, func() {
		if _, ok := s.b.Acquire(who, key, cost, urgent, nil); !ok {
			panic("who was woken is served")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.order = append(s.order, fmt.Sprint(key, "@", int(time.Since(s.begun).Round(time.Second).Seconds())))
	})
	return ok
}

func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var short []string
		b := newBudget(Price{1, 1000}, Price{5, 10_000}, func(namespace string) { short = append(short, namespace) })
		s := &spending{b: b, begun: time.Now()}
		one := Price{1, 1}
		for i := range 5 {
			if !s.ask(Party{"a", "x"}, fmt.Sprint("first", i), one, false) {
				t.Fatalf("the saved budget is not available at once: request %d", i)
			}
		}
		for i := range 3 {
			s.ask(Party{"a", "x"}, fmt.Sprint("x", i), one, false)
		}
		s.ask(Party{"a", "y"}, "y", one, false)
		s.ask(Party{"a", "x"}, "end", one, true)
		s.ask(Party{"a", "x"}, "gone", one, false)
		s.ask(Party{"a", "x"}, "x2", one, true) // the request becomes urgent
		if b.Withdraw(Party{"a", "x"}, "gone"); !s.ask(Party{"b", ""}, "b", one, false) {
			t.Error("another namespace waits")
		}
		if u := b.Usage(); u.Waiting != 5 || u.Groups != 1 {
			t.Errorf("usage %+v", u)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"end@0", "x2@1", "x0@2", "y@3", "x1@4"}
		if !slices.Equal(s.order, want) {
			t.Errorf("order %v, want %v", s.order, want)
		}
		if !slices.Equal(short, []string{"a"}) {
			t.Errorf("short of budget: %v", short)
		}
		if u := b.Usage(); u.Waiting != 0 || u.Groups != 0 || len(b.requests) != 0 {
			t.Errorf("left over: %+v, %d", u, len(b.requests))
		}
	})
}

// TestBudgetOfBytes: one large object costs as much as many small ones. A cost above the budget only delays later
// requests.
func TestBudgetOfBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &spending{b: newBudget(Price{1000, 1000}, Price{1000, 1000}, func(string) {}), begun: time.Now()}
		who := Party{"a", ""}
		if !s.ask(who, "large", Price{1, 10_000}, false) {
			t.Fatal("the first request waits although the budget is full")
		}
		s.ask(who, "small", Price{1, 10}, false)
		s.b.Charge("a", Price{Bytes: 1000}) // the object was larger than its estimate
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"small@10"}; !slices.Equal(s.order, want) {
			t.Errorf("order %v, want %v", s.order, want)
		}
	})
}

// TestBudgetDropsFullAccounts: a namespace with a full budget has no account.
func TestBudgetDropsFullAccounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Price{1, 1}, Price{1, 1}, func(string) {})
		for i := range 3 * minSweep {
			b.Charge(fmt.Sprint("n", i), Price{1, 0})
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		if n := len(b.accounts); n > 2*minSweep {
			t.Errorf("%d accounts remain", n)
		}
	})
}

// TestBudgetOfLargeRequests: of all namespaces together, at most two large requests are in flight, and namespaces take
// turns. Small requests of other namespaces never wait.
func TestBudgetOfLargeRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Price{1e6, 1e9}, Price{1e6, 1e9}, func(string) {})
		b.Abreast, b.Large = 1000, 500
		large, small := Price{1, 900}, Price{1, 10}
		var hands sync.WaitGroup
		var most, abreast atomic.Int64
		served := map[string]*atomic.Int64{}
		for i := range 10 {
			name, n := fmt.Sprint("n", i), &atomic.Int64{}
			served[name] = n
			for range 3 {
				hands.Go(func() {
					for range 20 {
						if b.Wait(t.Context(), Party{Group: name}, large, false) != nil {
							return
						}
						now := abreast.Add(1)
						most.Store(max(most.Load(), now))
						time.Sleep(10 * time.Millisecond)
						abreast.Add(-1)
						n.Add(1)
						b.End(name, large, large)
					}
				})
			}
		}
		time.Sleep(time.Second)
		for i := range 100 {
			if _, ok := b.Acquire(Party{Group: "victim"}, i, small, false, nil); !ok {
				t.Fatal("a small request waits")
			}
			b.End("victim", small, small)
		}
		for name, n := range served {
			if n.Load() < 5 { // a mean of twenty
				t.Errorf("%s was served %d times", name, n.Load())
			}
		}
		hands.Wait()
		if most.Load() != 2 {
			t.Errorf("%d large requests at a time", most.Load())
		}
		if b.open != 0 {
			t.Errorf("%v bytes are still in flight", b.open)
		}
		// Total allows a burst of ten requests, the burst of one namespace, and one a second afterwards for all namespaces
		// together.
		b = newBudget(Price{1e6, 1e9}, Price{1e6, 9_000}, func(string) {})
		b.Abreast, b.Large, b.Total = 1000, 500, Price{1e6, 900}
		begun := time.Now()
		for i := range 40 {
			hands.Go(func() {
				name := fmt.Sprint("n", i)
				if b.Wait(t.Context(), Party{Group: name}, large, false) == nil {
					b.End(name, large, large)
				}
			})
		}
		hands.Wait()
		if took := time.Since(begun).Round(time.Second); took < 29*time.Second || took > 35*time.Second {
			t.Errorf("forty requests, ten of them at once, took %v", took)
		}
	})
}

// TestBudgetOfAll: many flooding namespaces together are bounded by Total. A namespace with few requests never waits,
// and the last flooding namespace gets its full rate.
func TestBudgetOfAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rest, all, attack = 10, 20, 100 // attack is in seconds
		one := Price{1, 1}
		b := newBudget(Price{1, 1e6}, Price{rest, 1e7}, func(string) {})
		b.Total = Price{2, 1e7}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var hands sync.WaitGroup
		flood := func(namespace string, until time.Duration) *atomic.Int64 {
			var got atomic.Int64
			bounded, stop := context.WithTimeout(ctx, until)
			hands.Go(func() {
				defer stop()
				for b.Wait(bounded, Party{Group: namespace}, one, false) == nil {
					b.End(namespace, one, one)
					got.Add(1)
				}
			})
			return &got
		}
		var floods []*atomic.Int64
		for i := range all {
			floods = append(floods, flood(fmt.Sprint("many", i), attack*time.Second))
		}
		left := flood("left", 4*attack*time.Second)
		for i := range attack / 2 {
			if _, ok := b.Acquire(Party{Group: "victim"}, i, one, false, nil); !ok {
				t.Fatalf("the victim waits at request %d", i)
			}
			b.End("victim", one, one)
			time.Sleep(2 * time.Second)
		}
		total := int64(0)
		for _, got := range floods {
			n := got.Load()
			if fair := int64(rest + 2*attack/(all+1)); n < fair-5 || n > fair+5 {
				t.Errorf("one of many got %d, want %d", n, fair)
			}
			total += n
		}
		if most := int64(all*rest + 2*attack + all); total > most {
			t.Errorf("all together got %d, want at most %d", total, most)
		}
		time.Sleep(attack * time.Second) // meanwhile the idle namespaces refill, which uses a share, too
		before := left.Load()
		time.Sleep(attack * time.Second)
		if got := left.Load() - before; got < attack-10 || got > attack+1 {
			t.Errorf("the last flooding namespace got %d in %d seconds", got, attack)
		}
		cancel()
		hands.Wait()
		time.Sleep(time.Minute)
		b.Charge("victim", Price{})
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, a := range b.accounts {
			b.refill(a, time.Now())
		}
		if b.throttled != 0 {
			t.Errorf("%d namespaces are throttled after a pause", b.throttled)
		}
	})
}

// TestBudgetIsKept makes random requests. Over any time, each namespace gets at most its rate and its saved budget. In
// the end all requests are served.
func TestBudgetIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(Price{2, 1e9}, Price{4, 1e9}, func(string) {})
			begun := time.Now()
			served, asked := map[string]int{}, 0
			var mu sync.Mutex
			for i := range rapid.IntRange(1, 50).Draw(rt, "steps") {
				namespace := fmt.Sprint("n", rapid.IntRange(0, 1).Draw(rt, "namespace"))
				who := Party{namespace, fmt.Sprint("t", rapid.IntRange(0, 2).Draw(rt, "tenant"))}
				count := func() {
					mu.Lock()
					defer mu.Unlock()
					served[namespace]++
					if most := 4 + 1 + int(2*time.Since(begun).Seconds()); served[namespace] > most {
						rt.Errorf("%s got %d, of %d", namespace, served[namespace], most)
					}
				}
				switch rapid.IntRange(0, 3).Draw(rt, "action") {
				case 0, 1, 2:
					asked++
					urgent := rapid.Bool().Draw(rt, "urgent")
					if _, ok := b.Acquire(who, i, Price{Count: 1}, urgent, func() {
						b.Acquire(who, i, Price{Count: 1}, urgent, nil)
						count()
					}); ok {
						count()
					}
				case 3:
					time.Sleep(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "pause")) * time.Millisecond)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if served["n0"]+served["n1"] != asked || len(b.requests) != 0 {
				rt.Errorf("%v of %d were served", served, asked)
			}
		})
	})
}

// TestBudgetAbreast: of one namespace at most two large requests are in flight, whatever its budget. Other namespaces
// do not wait.
func TestBudgetAbreast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(Price{1000, 1e6}, Price{1000, 1e9}, func(string) {})
		b.Abreast, b.Large = 1000, 1e6
		s := &spending{b: b, begun: time.Now()}
		a, other := Party{"a", ""}, Party{"b", ""}
		large, small := Price{1, 900}, Price{1, 10}
		if !s.ask(a, "1", large, false) || !s.ask(a, "2", large, false) {
			t.Fatal("the first two requests wait")
		}
		for _, waits := range []string{"3", "4", "5"} {
			if s.ask(a, waits, large, false) {
				t.Fatal("a third request at a time")
			}
		}
		s.ask(a, "small", small, false)
		s.ask(a, "end", small, true)
		if !s.ask(other, "b", large, false) {
			t.Error("another namespace waits")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(s.order) > 0 {
			t.Errorf("%v were served although no request has ended", s.order)
		}
		b.End("a", large, Price{1, 5}) // "end" and "3" begin
		time.Sleep(time.Second)
		b.Withdraw(a, "4")
		b.End("a", large, large) // "5" and "small" begin
		time.Sleep(time.Second)
		synctest.Wait()
		if want := []string{"end@10", "3@10", "5@11"}; !slices.Equal(s.order[:3], want) {
			t.Errorf("order %v, want %v", s.order, want)
		}
		for _, paid := range []Price{small, large, large} {
			b.End("a", paid, paid)
		}
		synctest.Wait()
		if len(s.order) != 4 {
			t.Errorf("order %v, want all but the withdrawn request", s.order)
		}
		b.End("a", small, small)
		b.End("b", large, large)
		b.Take("a", large)
		b.End("a", large, large)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, a := range b.accounts {
			if a.open != 0 || a.timer != nil {
				t.Errorf("%s has %v bytes in flight, a timer is set: %v", a.group, a.open, a.timer != nil)
			}
		}
	})
}
