package store_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A reference to a closed drainer keeps no object in memory that is superseded later, whoever closes it, and whatever
// it has not taken.
func TestClosedDrainerKeepsNothing(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		name    string
		unread  bool // the drainer is closed before it has taken anything
		consume func(d *store.Drainer, e *store.Event) (more bool)
	}{
		{name: "the consumer wants no more", consume: func(_ *store.Drainer, e *store.Event) bool {
			return e.Type != store.Synced
		}},
		{name: "the consumer closes it", consume: func(d *store.Drainer, e *store.Event) bool {
			if e.Type == store.Synced {
				d.Close()
			}
			return true
		}},
		{name: "the consumer wants nothing", consume: func(*store.Drainer, *store.Event) bool { return false }},
		{name: "another goroutine closes it", consume: func(*store.Drainer, *store.Event) bool { return true }},
		{name: "before its first batch", unread: true},
	} {
		for _, way := range drainings {
			t.Run(how.name+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					s := newStore(t, store.Options{})
					sink := s.Sink("")
					list(t, sink, 9, obj("a", "u1", 5), obj("b", "u2", 6), obj("c", "u3", 7))
					var d *store.Drainer
					if how.unread {
						d = s.Drain(store.DrainOptions{Consume: func([]store.Event) bool { return true }})
						d.Close()
						for d.Step() {
						}
					} else {
						made := make(chan struct{})
						d = way.run(t, s, store.DrainOptions{Batch: 1, Consume: func(events []store.Event) bool {
							if way.name != "inline" { // its first drain is over before run returns
								<-made
							}
							return d == nil || how.consume(d, &events[0])
						}})
						close(made)
						apply(t, sink, source.Modified, obj("a", "u1", 10))
						synctest.Wait()
					}
					d.Close()
					synctest.Wait()
					other := s.Subscribe(store.SubscribeOptions{Name: "other"}) // the log is kept for it
					var superseded []weak.Pointer[store.Record]
					for version := 11; version < 300; version++ {
						before, _ := s.Get(store.Key{Namespace: "ns", Name: "a"})
						superseded = append(superseded, weak.Make(before))
						apply(t, sink, source.Modified, obj("a", "u1", version))
						for len(other.Take(10)) > 0 {
						}
					}
					s.Flush()
					runtime.GC()
					alive := 0
					for _, p := range superseded {
						if p.Value() != nil {
							alive++
						}
					}
					if most := 64; alive > most { // the newest part of the log
						t.Errorf("%d superseded objects are in memory, want %d at most", alive, most)
					}
					if lag := d.Lag(); lag != 0 {
						t.Errorf("the lag is %d", lag)
					}
					runtime.KeepAlive(d)
				})
			})
		}
	}
}
