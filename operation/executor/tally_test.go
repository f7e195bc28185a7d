package executor

import (
	"fmt"
	"testing"

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
