package observe

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// A history of one key that is folded at any places still satisfies W1, W2 and W3. It has the same end, and at most two
// events are pending.
func TestFoldKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := store.New(store.Options{Namespaced: true})
		defer s.Close()
		cursor := s.Subscribe(store.SubscribeOptions{})
		defer cursor.Close()
		h := historian{rt: rt, sink: s.Sink("")}
		var queue, delivered []store.Event
		for range rapid.IntRange(1, 30).Draw(rt, "changes") {
			h.change()
			for _, e := range cursor.Take(10) {
				if rapid.Bool().Draw(rt, "as a resync") && e.Type == store.Modified {
					queue = fold(queue, e)
					e.Type, e.Prior = store.Sync, e.Object
				}
				if queue = fold(queue, e); len(queue) > 2 {
					rt.Fatalf("%d events are pending", len(queue))
				}
			}
			if rapid.Bool().Draw(rt, "handle") && len(queue) > 0 {
				delivered, queue = append(delivered, queue[0]), queue[1:]
			}
		}
		delivered = append(delivered, queue...)
		state, err := watchtest.CheckEvents(delivered)
		if err != nil {
			rt.Fatal(err)
		}
		now, _ := s.Get(cache.Key{Namespace: "a", Name: "x"})
		if got := state[cache.Key{Namespace: "a", Name: "x"}]; got != now {
			rt.Fatalf("the history ends at %v, want %v", got, now)
		}
	})
}

// historian changes one object.
type historian struct {
	rt      *rapid.T
	sink    source.Sink
	version int
	uid     int
	there   bool
}

func (h *historian) change() {
	h.version++
	typ := source.Added
	if h.there {
		typ = rapid.SampledFrom([]source.ChangeType{source.Modified, source.Deleted}).Draw(h.rt, "type")
	}
	h.there = typ != source.Deleted
	if typ == source.Added {
		h.uid++
	}
	o, err := scan(fmt.Appendf(nil,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","namespace":"a","uid":"%d","resourceVersion":"%d"}}`,
		h.uid, h.version))
	if err == nil {
		err = h.sink.Apply(typ, o)
	}
	if err != nil {
		h.rt.Fatal(err)
	}
}
