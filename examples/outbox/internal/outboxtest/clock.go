package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations/outbox"
)

// testClocksOfOthers runs writers whose clocks are days off, and a relay that uses the database's clock. New entries
// and retries are due at once, in commit order.
func testClocksOfOthers(t *testing.T, b *bench) {
	byDatabase, err := outbox.Open(b.db, b.Dialect, outbox.Options{Table: b.table})
	if err != nil {
		t.Fatal(err)
	}
	for i, off := range []time.Duration{24 * time.Hour, -48 * time.Hour, 24 * time.Hour} {
		b.clock.pass(off)
		b.put(t, entry(fmt.Sprint("e", i), "k"))
	}
	got := make(chan string, 10)
	r := b.relay(func(_ context.Context, e outbox.Entry) error {
		got <- fmt.Sprint(e.ID, " ", e.Attempt)
		if e.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	r.Outbox = byDatabase
	start(t, r)
	var seen []string
	for range 6 {
		seen = append(seen, take(t, got))
	}
	if diff := cmp.Diff([]string{"e0 1", "e0 2", "e1 1", "e1 2", "e2 1", "e2 2"}, seen); diff != "" {
		t.Errorf("deliveries (-want +got):\n%s", diff)
	}
}

// testClockOfTheDatabase checks that entries have the time at which they were enqueued.
func testClockOfTheDatabase(t *testing.T, b *bench) {
	var err error
	if b.Outbox, err = outbox.Open(b.db, b.Dialect, outbox.Options{Table: b.table}); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	b.put(t, entry("one", "k"))
	if oldest := b.stats(t).Oldest; oldest.Before(before.Add(-time.Second)) || oldest.After(time.Now().Add(time.Second)) {
		t.Errorf("enqueued at %v, by the clock here between %v and now", oldest, before)
	}
}
