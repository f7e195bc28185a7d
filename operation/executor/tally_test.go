package executor

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/why"
)

// TestTally: each operation counts once, under its present cause, and the series are bounded, whatever the cause is.
func TestTally(t *testing.T) {
	t.Parallel()
	tally := newTally()
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
}

// TestScrape: a scrape of what is kept of 100,000 operations takes less than 10 ms, and about as long as one of 1,000
// operations, since no scrape looks at the operations.
func TestScrape(t *testing.T) {
	t.Parallel()
	const bound = 10 * time.Millisecond
	registryOf := func(n int) *prometheus.Registry {
		var p progress
		tally := newTally()
		for i := range n {
			tally.set(store.Key{Namespace: "prod", Name: strconv.Itoa(i)}, stuckBy[i%len(stuckBy)])
			p.enter(int64(i % 100))
		}
		registry := prometheus.NewRegistry()
		m := newMetrics(func() census { return p.look(50) }, func() int { return 0 })
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
	quick, fastest := time.Hour, time.Hour // a busy machine delays most of them
	for range 50 {
		quick, fastest = min(quick, scrape(few)), min(fastest, scrape(many))
	}
	if fastest >= bound || fastest > 4*quick {
		t.Errorf("A scrape of 100,000 operations takes %v, want less than %v, and %v for 1,000.", fastest, bound, quick)
	}
}
