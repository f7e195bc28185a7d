package store_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
)

// A resync that is due while a write is in flight is delivered when the write is committed. Until then Take returns
// without searching for it repeatedly.
func TestResyncWaitsForWrites(t *testing.T) {
	t.Parallel()
	var cursor atomic.Pointer[store.Cursor]
	// on the real clock, since the fake one stands still
	watchdog := time.AfterFunc(time.Minute, func() { cursor.Load().Close() })
	defer watchdog.Stop()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.s.Close()
		b.c.Close()
		var woken atomic.Int32
		b.c = b.s.Subscribe(store.SubscribeOptions{HoldWrites: "ctl", Resync: time.Hour, Wake: func() { woken.Add(1) }})
		cursor.Store(b.c)
		drain(b.c)
		w := b.begin("new")
		b.event(status(10, "x", "new"))
		<-time.After(time.Hour) // every step is due
		if got := drain(b.c); len(got) > 0 || !watchdog.Stop() {
			t.Fatalf("Take does not return while a write is in flight, or returned %v", summary(got))
		}
		before := woken.Load()
		b.done(w, status(10, "x", "new"))
		if woken.Load() == before {
			t.Error("not woken when the write was committed")
		}
		if got := drain(b.c); len(got) != 1 || got[0].Type != store.Sync {
			t.Errorf("delivered when the write was committed: %v", summary(got))
		}
	})
}
