package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

func TestSyncedAfterInitialObjectsWereHandled(t *testing.T) {
	t.Parallel()
	for _, early := range []bool{true, false} {
		s := newStore(t, store.Options{})
		var c *store.Cursor
		if early {
			c = s.Subscribe(store.SubscribeOptions{})
		}
		list(t, s.Sink(""), 9, obj("a", "u1", 5), obj("b", "u2", 6))
		if !early {
			c = s.Subscribe(store.SubscribeOptions{})
		}
		if got := len(c.Take(10)); got != 2 {
			t.Fatalf("early %v: first take has %d events, want the two initial objects alone", early, got)
		}
		got := c.Take(10)
		if len(got) != 1 || got[0].Type != store.Synced || got[0].Count != 2 || got[0].Version != "9" {
			t.Fatalf("early %v: second take %v, want SYNCED of two objects at 9", early, got)
		}
		if got := c.Take(10); len(got) != 0 {
			t.Fatalf("early %v: then %v", early, summary(got))
		}
	}
}

func TestJoinDuringChanges(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	list(t, sink, 9, obj("a", "u1", 5), obj("b", "u2", 6))
	c := s.Subscribe(store.SubscribeOptions{})
	apply(t, sink, source.Modified, obj("a", "u1", 10))
	apply(t, sink, source.Deleted, obj("b", "u2", 11))
	want := []string{"ADDED ns/a@5 initial", "ADDED ns/b@6 initial", "SYNCED", "MODIFIED ns/a@10<5", "DELETED ns/b@11<6"}
	if d := cmp.Diff(want, sortInitial(summary(drain(c)))); d != "" {
		t.Error(d)
	}
}

func TestFromNow(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	list(t, sink, 9, obj("a", "u1", 5))
	c := s.Subscribe(store.SubscribeOptions{From: store.FromNow})
	apply(t, sink, source.Modified, obj("a", "u1", 10))
	if d := cmp.Diff([]string{"SYNCED", "MODIFIED ns/a@10<5"}, summary(drain(c))); d != "" {
		t.Error(d)
	}
}

func TestSlowSubscriberCostsPerKey(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	const keys, rounds = 10, 2000
	var things []thing
	for i := range keys {
		things = append(things, obj(fmt.Sprint("k", i), fmt.Sprint("u", i), 5))
	}
	list(t, sink, 9, things...)
	slow, fast := s.Subscribe(store.SubscribeOptions{}), s.Subscribe(store.SubscribeOptions{})
	drain(slow)
	drain(fast)
	version, got := 10, 0
	for range rounds {
		for i := range things {
			version++
			things[i].version = version
			apply(t, sink, source.Modified, things[i])
		}
		got += len(drain(fast))
	}
	if got != keys*rounds {
		t.Errorf("the other subscriber got %d events, want each of %d", got, keys*rounds)
	}
	entries, folded := store.Backlog(slow)
	if entries > 2*store.MaxLag || folded > keys {
		t.Errorf("a blocked subscriber holds %d log entries and %d keys after %d events", entries, folded, keys*rounds)
	}
	events := drain(slow)
	if len(events) > entries+folded {
		t.Errorf("%d events for it", len(events))
	}
	last := map[store.Key]string{}
	for _, e := range events {
		last[e.Key] = e.Object.Version()
	}
	for _, x := range things {
		if last[x.key()] != fmt.Sprint(x.version) {
			t.Errorf("%s: got %s last, want %d", x.name, last[x.key()], x.version)
		}
	}
}

func TestFoldedBoundaries(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		do     func(t *testing.T, sink source.Sink)
		want   []string
	}{
		{"changes become one, from the last delivered state", func(t *testing.T, sink source.Sink) {
			apply(t, sink, source.Modified, obj("a", "u1", 10))
			apply(t, sink, source.Modified, obj("a", "u1", 11))
		}, []string{"MODIFIED ns/a@11<5"}},
		{"a deletion has its final state", func(t *testing.T, sink source.Sink) {
			apply(t, sink, source.Modified, obj("a", "u1", 10))
			apply(t, sink, source.Deleted, obj("a", "u1", 11))
		}, []string{"DELETED ns/a@11<5"}},
		{"deletion and re-creation stay two", func(t *testing.T, sink source.Sink) {
			apply(t, sink, source.Deleted, obj("a", "u1", 11))
			apply(t, sink, source.Added, obj("a", "u9", 12))
			apply(t, sink, source.Modified, obj("a", "u9", 13))
		}, []string{"DELETED ns/a@11<5", "ADDED ns/a@13"}},
		{"also of the same uid that left a selector and came back", func(t *testing.T, sink source.Sink) {
			apply(t, sink, source.Deleted, obj("a", "u1", 11))
			apply(t, sink, source.Added, obj("a", "u1", 12))
		}, []string{"DELETED ns/a@11<5", "ADDED ns/a@12"}},
		{"an object that came and went is not delivered", func(t *testing.T, sink source.Sink) {
			apply(t, sink, source.Added, obj("b", "u2", 11))
			apply(t, sink, source.Deleted, obj("b", "u2", 12))
		}, nil},
		{"of several incarnations the end of the delivered one and the last one", func(t *testing.T, sink source.Sink) {
			apply(t, sink, source.Deleted, obj("a", "u1", 11))
			apply(t, sink, source.Added, obj("a", "u2", 12))
			apply(t, sink, source.Deleted, obj("a", "u2", 13))
			apply(t, sink, source.Added, obj("a", "u3", 14))
		}, []string{"DELETED ns/a@11<5", "ADDED ns/a@14"}},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, store.Options{})
			sink := s.Sink("")
			list(t, sink, 9, obj("a", "u1", 5))
			c := s.Subscribe(store.SubscribeOptions{})
			all := drain(c)
			all = append([]store.Event(nil), all...)
			tc.do(t, sink)
			store.Fold(c, 0)
			var got []store.Event
			for { // one event at a time: deletion and addition stay apart even in the smallest take
				e := c.Take(1)
				if len(e) == 0 {
					break
				}
				got = append(got, e...)
			}
			if d := cmp.Diff(tc.want, summary(got)); d != "" {
				t.Error(d)
			}
			if _, err := watchtest.CheckEvents(append(all, got...)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFilterFlips(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	red := func(name string, version int) thing {
		x := obj(name, "u-"+name, version)
		x.labels = `"color":"red"`
		return x
	}
	filter := func(r *store.Record) bool { v, _ := r.Label("color"); return v == "red" }
	for i, folded := range []bool{false, true} {
		v := 100 * (i + 1)
		list(t, sink, v+9, red("a", v+5), obj("b", "u-b", v+6))
		c := s.Subscribe(store.SubscribeOptions{Filter: filter})
		if d := cmp.Diff([]string{fmt.Sprintf("ADDED ns/a@%d initial", v+5), "SYNCED"}, summary(drain(c))); d != "" {
			t.Error(d)
		}
		apply(t, sink, source.Modified, obj("a", "u-a", v+10))
		apply(t, sink, source.Modified, red("b", v+11))
		if folded {
			store.Fold(c, 0)
		}
		want := []string{fmt.Sprintf("DELETED ns/a@%d<%d", v+10, v+5), fmt.Sprintf("ADDED ns/b@%d", v+11)}
		if d := cmp.Diff(want, summary(drain(c))); d != "" {
			t.Errorf("folded %v: %s", folded, d)
		}
	}
	c := s.Subscribe(store.SubscribeOptions{Filter: func(*store.Record) bool { panic("filter") }})
	if d := cmp.Diff([]string{"SYNCED"}, summary(drain(c))); d != "" {
		t.Errorf("a filter that panics: %s", d)
	}
}

func TestWakeAndCloseFromHandler(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	list(t, sink, 9)
	woken := 0
	var c *store.Cursor
	c = s.Subscribe(store.SubscribeOptions{Wake: func() {
		woken++
		if len(c.Take(10)) != 0 {
			c.Close() // closes the cursor from its own handler
		}
	}})
	drain(c)
	apply(t, sink, source.Added, obj("a", "u1", 10))
	apply(t, sink, source.Added, obj("b", "u2", 11))
	if woken != 1 {
		t.Errorf("woken %d times, want once", woken)
	}
	p := s.Subscribe(store.SubscribeOptions{Wake: func() { panic("wake") }})
	drain(p)
	apply(t, sink, source.Added, obj("c", "u3", 12))
	if got := len(drain(p)); got != 1 {
		t.Errorf("a subscriber whose wake function panics got %d events", got)
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	list(t, sink, 9, obj("a", "u1", 5))
	c := s.Subscribe(store.SubscribeOptions{})
	for _, want := range []store.EventType{store.Added, store.Synced} {
		if e, err := c.Next(t.Context()); err != nil || e.Type != want {
			t.Fatalf("next is %v, %v, want %v", e.Type, err, want)
		}
	}
	got := make(chan store.Event)
	go func() {
		e, err := c.Next(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- e
	}()
	apply(t, sink, source.Modified, obj("a", "u1", 10))
	if e := <-got; e.Type != store.Modified {
		t.Errorf("next is %v", e.Type)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	closed := make(chan error)
	go func() {
		_, err := c.Next(t.Context())
		closed <- err
	}()
	c.Close()
	if err := <-closed; !errors.Is(err, store.ErrClosed) {
		t.Errorf("error %v, want closed", err)
	}
}

func TestIdleCursorIsSmall(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(store.Cursor{}); n > 1024 {
		t.Errorf("a cursor has %d bytes", n)
	}
}

func TestResync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.New(store.Options{})
		defer s.Close()
		sink := s.Sink("")
		var things []thing
		for i := range 200 {
			things = append(things, obj(fmt.Sprint("k", i), fmt.Sprint("u", i), 5))
		}
		list(t, sink, 9, things...)
		wake := make(chan struct{}, 1)
		c := s.Subscribe(store.SubscribeOptions{Resync: time.Hour, Wake: func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		}})
		drain(c)
		count, largest, version := map[store.Key]int{}, 0, 100
		start := time.Now()
		for time.Since(start) < 2*time.Hour-time.Second {
			<-wake
			n := 0
			version++ // an object changes just before each step: the change has to come first
			things[0].version = version
			apply(t, sink, source.Modified, things[0])
			for i, e := range drain(c) {
				if e.Type == store.Sync {
					count[e.Key]++
					n++
					if e.Key == things[0].key() && e.Object.Version() != fmt.Sprint(version) {
						t.Errorf("SYNC with version %s after %d", e.Object.Version(), version)
					}
				} else if i > 0 {
					t.Errorf("%v after a SYNC", e.Type)
				}
			}
			largest = max(largest, n)
		}
		for _, x := range things {
			if n := count[x.key()]; n < 1 || n > 2 {
				t.Errorf("%s: %d SYNC in two periods", x.name, n)
			}
		}
		if largest > 40 {
			t.Errorf("%d of 200 objects at once: the resync is not spread", largest)
		}
	})
}
