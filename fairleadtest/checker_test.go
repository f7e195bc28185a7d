package fairleadtest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/fairleadtest"
	"github.com/fairlead-io/fairlead/store"
)

func at(uid, version string) fairleadtest.State {
	return fairleadtest.State{UID: uid, Version: version}
}

// TestCheck gives the checker recordings that break one invariant each.
func TestCheck(t *testing.T) {
	t.Parallel()
	add := fairleadtest.Event{Type: store.Added, Key: "a", Object: at("u", "5"), Initial: true}
	synced := fairleadtest.Event{Type: store.Synced, Count: 1}
	modified := fairleadtest.Event{Type: store.Modified, Key: "a", Object: at("u", "7"), Prior: at("u", "5")}
	deleted := fairleadtest.Event{Type: store.Deleted, Key: "a", Object: at("u", "9"), Prior: at("u", "7")}
	change := func(e fairleadtest.Event, fn func(*fairleadtest.Event)) fairleadtest.Event { fn(&e); return e }
	cases := []struct {
		reason string
		rec    fairleadtest.Recording
		want   []string
	}{
		{"a life as it should be", fairleadtest.Recording{Events: []fairleadtest.Event{add, synced, modified, deleted}}, nil},
		{"a version goes down", fairleadtest.Recording{Events: []fairleadtest.Event{
			add, synced, modified,
			change(modified, func(e *fairleadtest.Event) { e.Object, e.Prior = at("u", "6"), at("u", "7") }),
		}}, []string{"W1"}},
		{"a version goes down after an epoch", fairleadtest.Recording{Events: []fairleadtest.Event{
			add, synced, modified,
			{Type: store.Epoch},
			change(modified, func(e *fairleadtest.Event) { e.Object, e.Prior = at("u", "6"), at("u", "7") }),
		}}, nil},
		{"ADDED of what is there", fairleadtest.Recording{Events: []fairleadtest.Event{
			add, synced,
			{Type: store.Added, Key: "a", Object: at("u", "6"), Prior: at("u", "5")},
		}}, []string{"W2"}},
		{"a re-creation as MODIFIED", fairleadtest.Recording{Events: []fairleadtest.Event{
			add, synced,
			change(modified, func(e *fairleadtest.Event) { e.Object = at("v", "7") }),
		}}, []string{"W2"}},
		{"another prior", fairleadtest.Recording{Events: []fairleadtest.Event{
			add, synced,
			change(modified, func(e *fairleadtest.Event) { e.Prior = at("u", "4") }),
		}}, []string{"W3"}},
		{"the cache is behind", fairleadtest.Recording{Events: []fairleadtest.Event{
			add, synced,
			change(modified, func(e *fairleadtest.Event) { e.Looked, e.Cached = true, at("u", "5") }),
		}}, []string{"W5"}},
		{"SYNCED twice", fairleadtest.Recording{Events: []fairleadtest.Event{add, synced, synced}}, []string{"W6"}},
		{"SYNCED before the last initial object", fairleadtest.Recording{Events: []fairleadtest.Event{
			change(synced, func(e *fairleadtest.Event) { e.Count = 0 }), add,
		}}, []string{"W6"}},
		{"a queue of events", fairleadtest.Recording{
			Events: []fairleadtest.Event{add, synced}, MaxWaiting: 100_000, Keys: 10,
		}, []string{"W10"}},
		{"deleted by mistake", fairleadtest.Recording{Events: []fairleadtest.Event{
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

// TestCheckAtRest compares the fold of the events with server and cache.
func TestCheckAtRest(t *testing.T) {
	t.Parallel()
	rec := fairleadtest.Recording{Events: []fairleadtest.Event{
		{Type: store.Added, Key: "a", Object: at("u", "5"), Initial: true},
	}}
	server := map[string]fairleadtest.State{"a": at("u", "5")}
	if found := rec.CheckAtRest(server, server); len(found) > 0 {
		t.Errorf("at rest: %v", found)
	}
	if found := rec.CheckAtRest(map[string]fairleadtest.State{"a": at("u", "6")}, server); len(found) != 2 {
		t.Errorf("events and cache are behind: %v", found)
	}
}
