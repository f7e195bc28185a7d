package executor

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/why"
)

// TestTally: each operation counts once, under its current cause. The number of series is bounded for all causes.
func TestTally(t *testing.T) {
	t.Parallel()
	var at, behind []store.Key
	tally := newTally(func() ([]store.Key, []store.Key) { return at, behind })
	key := func(i int) store.Key { return store.Key{Namespace: "prod", Name: fmt.Sprint(i)} }
	const n = 300
	for i := range n {
		tally.set(key(i), why.BackOff)
		tally.set(key(i), why.WebhookMissing)
		tally.set(key(i), why.WebhookMissing)
	}
	tally.set(key(0), "")
	tally.set(key(n), "")
	tally.set(key(1), "QuotaOfShop7")
	if got := testutil.CollectAndCount(tally); got != len(stuckBy) {
		t.Errorf("There are %d series, want one for each of %d types.", got, len(stuckBy))
	}
	want := map[why.Type]int{why.WebhookMissing: n - 2, why.Parked: 1}
	for _, cause := range stuckBy {
		if got := tally.counts[cause]; got != want[cause] {
			t.Errorf("%s counts %d operations, want %d.", cause, got, want[cause])
		}
	}
	if all := tally.all(); len(all) != n-1 || all[key(1)] != why.Parked || all[key(2)] != why.WebhookMissing {
		t.Errorf("The stuck operations are %d, want %d.", len(all), n-1)
	}
	at, behind = []store.Key{key(n), key(2)}, []store.Key{key(n + 1), key(3), key(n + 2)}
	all := tally.all()
	if len(all) != n+2 || all[key(n)] != why.Parked || all[key(n+1)] != why.QueuedBehind ||
		all[key(3)] != why.WebhookMissing {
		t.Errorf("With blocked workers the stuck operations are %d, want %d.", len(all), n+2)
	}
}

// TestScrape: a scrape with 100,000 operations takes less than 10 ms, and about as long as one with 1,000. No scrape
// visits the operations while workers return.
func TestScrape(t *testing.T) {
	t.Parallel()
	const bound = 10 * time.Millisecond
	registryOf := func(n int) *prometheus.Registry {
		var p progress
		tally := newTally(func() (at, behind []store.Key) { return nil, nil })
		for i := range n {
			tally.set(store.Key{Namespace: "prod", Name: strconv.Itoa(i)}, stuckBy[i%len(stuckBy)])
			p.enter(int64(i % 100))
		}
		registry := prometheus.NewRegistry()
		m := newMetrics(func() census { return p.count(50) }, func() int { return 0 })
		m.states = append(m.states, tally)
		registry.MustRegister(m)
		return registry
	}
	few, many := registryOf(1000), registryOf(100_000)
	scrape := func(r *prometheus.Registry) time.Duration {
		began := time.Now()
		if families, err := r.Gather(); err != nil || len(families) == 0 {
			t.Fatalf("%d families: %v", len(families), err)
		}
		return time.Since(began)
	}
	quick, fastest := time.Hour, time.Hour // the fastest of several runs, since a busy machine delays most of them
	for range 50 {
		quick, fastest = min(quick, scrape(few)), min(fastest, scrape(many))
	}
	if fastest >= bound || fastest > 4*quick {
		t.Errorf("A scrape of 100,000 operations takes %v, want less than %v, and %v for 1,000.", fastest, bound, quick)
	}
}

// TestBehindBlockedWorkers: operations queued behind blocked workers are stuck, except those that have ended.
func TestBehindBlockedWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		hangs := flow.New("operation", flow.Step("hang", func(_ context.Context, f *flow.Fiber[run]) flow.Next {
			<-done
			return f.Next()
		}))
		e := &Executor{engine: flow.NewEngine(flow.EngineOptions{Workers: 1}), runs: newRuns(nil)}
		e.stuck = newTally(func() (at, behind []store.Key) {
			running, ready := e.engine.Blocked()
			return e.runs.unfinished(running), e.runs.unfinished(ready)
		})
		var keys []store.Key
		for i, p := range []phase{counted, uncounted, ended, uncounted} {
			key := store.Key{Namespace: "prod", Name: strconv.Itoa(i)}
			r := &run{key: key, phase: p}
			e.runs.add(r, func() bool { return true })
			keys = append(keys, key)
			if _, err := hangs.Start(t.Context(), e.engine, r, flow.StartOptions{Key: key.String()}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		stuck := func(want map[store.Key]why.Type) {
			t.Helper()
			if got := e.Stuck(); !maps.Equal(got, want) {
				t.Errorf("Stuck are %v, want %v.", got, want)
			}
			registry := prometheus.NewRegistry()
			registry.MustRegister(e.stuck)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, m := range families[0].GetMetric() {
				n += int(m.GetGauge().GetValue())
			}
			if n != len(want) {
				t.Errorf("The metric counts %d operations, want %d.", n, len(want))
			}
		}
		stuck(map[store.Key]why.Type{})
		time.Sleep(2 * time.Minute)
		stuck(map[store.Key]why.Type{keys[0]: why.Parked, keys[1]: why.QueuedBehind, keys[3]: why.QueuedBehind})
		close(done)
		synctest.Wait()
		stuck(map[store.Key]why.Type{})
		if err := e.engine.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
