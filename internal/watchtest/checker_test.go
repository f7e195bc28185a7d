package watchtest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

func at(uid, version string) watchtest.State {
	return watchtest.State{UID: uid, Version: version}
}

// TestCheck: each recording breaks one invariant.
func TestCheck(t *testing.T) {
	t.Parallel()
	add := watchtest.Event{Type: store.Added, Key: "a", Object: at("u", "5"), Initial: true}
	synced := watchtest.Event{Type: store.Synced, Count: 1}
	modified := watchtest.Event{Type: store.Modified, Key: "a", Object: at("u", "7"), Prior: at("u", "5")}
	deleted := watchtest.Event{Type: store.Deleted, Key: "a", Object: at("u", "9"), Prior: at("u", "7")}
	change := func(e watchtest.Event, fn func(*watchtest.Event)) watchtest.Event { fn(&e); return e }
	cases := []struct {
		reason string
		rec    watchtest.Recording
		want   []string
	}{
		{"a valid life", watchtest.Recording{Events: []watchtest.Event{add, synced, modified, deleted}}, nil},
		{"a version goes down", watchtest.Recording{Events: []watchtest.Event{
			add, synced, modified,
			change(modified, func(e *watchtest.Event) { e.Object, e.Prior = at("u", "6"), at("u", "7") }),
		}}, []string{"W1"}},
		{"a version goes down after an epoch", watchtest.Recording{Events: []watchtest.Event{
			add, synced, modified,
			{Type: store.Epoch},
			change(modified, func(e *watchtest.Event) { e.Object, e.Prior = at("u", "6"), at("u", "7") }),
		}}, nil},
		{"ADDED of a known object", watchtest.Recording{Events: []watchtest.Event{
			add, synced,
			{Type: store.Added, Key: "a", Object: at("u", "6"), Prior: at("u", "5")},
		}}, []string{"W2"}},
		{"a re-creation as MODIFIED", watchtest.Recording{Events: []watchtest.Event{
			add, synced,
			change(modified, func(e *watchtest.Event) { e.Object = at("v", "7") }),
		}}, []string{"W2"}},
		{"a wrong previous object", watchtest.Recording{Events: []watchtest.Event{
			add, synced,
			change(modified, func(e *watchtest.Event) { e.Prior = at("u", "4") }),
		}}, []string{"W3"}},
		{"the cache is behind", watchtest.Recording{Events: []watchtest.Event{
			add, synced,
			change(modified, func(e *watchtest.Event) { e.Looked, e.Cached = true, at("u", "5") }),
		}}, []string{"W5"}},
		{"SYNCED twice", watchtest.Recording{Events: []watchtest.Event{add, synced, synced}}, []string{"W6"}},
		{"SYNCED before the last initial object", watchtest.Recording{Events: []watchtest.Event{
			change(synced, func(e *watchtest.Event) { e.Count = 0 }), add,
		}}, []string{"W6"}},
		{"a queue of events", watchtest.Recording{
			Events: []watchtest.Event{add, synced}, MaxWaiting: 100_000, Keys: 10,
		}, []string{"W10"}},
		{"deleted by mistake", watchtest.Recording{Events: []watchtest.Event{
			add, synced, modified, deleted,
			{Type: store.Added, Key: "a", Object: at("u", "9")},
		}}, []string{"W11"}},
	}
	for _, c := range cases {
		_, found := c.rec.Check()
		var got []string
		for _, v := range found {
			got = append(got, v.Invariant)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s\n%v", c.reason, d, found)
		}
	}
}

// TestCheckAtRest compares the fold of the events with the server and the cache.
func TestCheckAtRest(t *testing.T) {
	t.Parallel()
	rec := watchtest.Recording{Events: []watchtest.Event{
		{Type: store.Added, Key: "a", Object: at("u", "5"), Initial: true},
	}}
	server := map[string]watchtest.State{"a": at("u", "5")}
	if found := rec.CheckAtRest(server, server); len(found) > 0 {
		t.Errorf("at rest: %v", found)
	}
	if found := rec.CheckAtRest(map[string]watchtest.State{"a": at("u", "6")}, server); len(found) != 2 {
		t.Errorf("events and cache are behind: %v", found)
	}
}
