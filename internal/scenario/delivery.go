package scenario

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
	"github.com/fairlead-io/fairlead/observe"
)

// lifecycleScenarios are about Start, Stop and changes of the subject while it runs.
func lifecycleScenarios() []Scenario {
	stopped := func(before func(*Run), until func(*Run)) Scenario {
		return Scenario{
			Section: lifecycle, Holds: "Stop works in every state", Fill: 20, Unsettled: true, Before: before,
			Script: until,
		}
	}
	named := func(name string, s Scenario) Scenario { s.Name = name; return s }
	return []Scenario{
		{
			Name: "subscriber joins late", Section: lifecycle, Fill: 20, Untimed: true,
			Holds: "subscribers can join at any time (snapshot, then live: no gap, no duplicate)",
			Script: func(r *Run) {
				r.Sync()
				for i := range 10 {
					r.Put(fmt.Sprint("o", i), "before")
					r.Join(fmt.Sprint("late ", i))
					r.Put(fmt.Sprint("o", i), "after")
					r.Remove(fmt.Sprint("o", 10+i))
				}
				r.Sync()
			},
		},
		{
			Name: "subscriber leaves", Section: lifecycle, Fill: 20, Untimed: true,
			Holds: "subscribers can be added and removed while it runs",
			Script: func(r *Run) {
				r.Sync()
				other := r.Cache.Subscribe("leaving")
				r.Put("o1", "1")
				r.Until("it was given", func() bool { return len(other.Recording().Events) > 20 })
				other.Leave()
				n := len(other.Recording().Events)
				r.Put("o1", "2")
				r.Sync()
				r.Expect(len(other.Recording().Events) == n, "it was given events after it had left")
			},
		},
		{
			Name: "two subscribers share one watch", Section: lifecycle, Fill: 20, Untimed: true,
			Holds: "two subscribers to the same thing share one watch",
			Script: func(r *Run) {
				r.Join("second")
				r.Join("third")
				r.Sync()
				r.Expect(r.Server.Log().Peak(watches) == 1, "%d watches at once", r.Server.Log().Peak(watches))
			},
		},
		{
			Name: "namespaces change", Section: lifecycle, Fill: 5, Untimed: true,
			Holds:  "namespaces […] can be added, changed and removed while it runs",
			Config: func(c *Config) { c.Namespaces = []string{"ns"} },
			Before: func(r *Run) { r.PutIn("b", "x", "1", nil); r.PutIn("c", "y", "1", nil) },
			Script: func(r *Run) {
				r.Sync()
				for _, set := range [][]string{{"ns", "b"}, {"b", "c"}, {"ns", "b", "c"}, {"ns"}} {
					r.rescoper().SetNamespaces(set...)
					r.Cfg.Namespaces = set
					r.PutIn("b", "x", fmt.Sprint(set), nil)
					r.PutIn("ns", "o1", fmt.Sprint(set), nil)
					r.Sync()
				}
			},
		},
		{
			Name: "selectors change", Section: lifecycle, Fill: 5, Untimed: true,
			Holds:  "selectors can be […] changed […] while it runs",
			Config: func(c *Config) { c.Labels = "app=a" },
			Before: func(r *Run) {
				for i := range 10 {
					r.PutIn("ns", fmt.Sprint("l", i), "1", map[string]string{"app": []string{"a", "b"}[i%2]})
				}
			},
			Script: func(r *Run) {
				r.Sync()
				for _, sel := range []string{"app=b", "app in (a,b)", "app=a"} {
					r.Cfg.Labels = sel
					r.rescoper().SetLabels(sel)
					r.Sync()
				}
			},
		},
		{
			Name: "object leaves and enters the selector", Section: lifecycle, Untimed: true,
			Holds:  "leaving a selector also arrives as DELETED",
			Config: func(c *Config) { c.Labels = "app=a" },
			Script: func(r *Run) {
				in, out := map[string]string{"app": "a"}, map[string]string{"app": "b"}
				r.PutIn("ns", "x", "1", in)
				r.PutIn("ns", "y", "1", in)
				r.Sync()
				r.PutIn("ns", "x", "2", out)
				r.Until("it left", r.AtRest)
				r.PutIn("ns", "x", "3", in)
				r.Sync()
				r.Away(func() { r.PutIn("ns", "x", "4", out); r.PutIn("ns", "z", "1", in) })
				r.Sync()
			},
		},
		named("stop before the first answer", stopped(func(r *Run) { r.Server.On(everything, apiserver.BlackHole()) },
			func(r *Run) {
				r.Until("asked", func() bool { return r.Count(everything) > 0 })
			})),
		named("stop within a list", stopped(func(r *Run) { r.Server.On(everything, apiserver.Drip(100, time.Hour)) },
			func(r *Run) {
				r.Until("asked", func() bool { return r.Count(everything) > 0 })
			})),
		named("stop during back-off", stopped(func(r *Run) { r.Server.Down() }, func(r *Run) { r.Pass(5 * time.Minute) })),
		named("stop while watching", stopped(nil, func(r *Run) { r.Sync(); r.Watching(1) })),
		named("stop with a blocked subscriber", stopped(nil, func(r *Run) {
			r.Sync()
			r.Main.Block()
			for i := range 50 {
				r.Put("o1", fmt.Sprint(i))
			}
			r.Until("cached", r.AtRest)
		})),
	}
}

// deliveryScenarios are about the events that subscribers receive.
func deliveryScenarios() []Scenario {
	return []Scenario{
		{
			Name: "blocked subscriber", Section: delivery, Fill: 10,
			Holds: "a slow or blocked subscriber delays nobody and costs memory per key, not per event",
			Script: func(r *Run) {
				other := r.Join("other")
				r.Sync()
				r.Main.Block()
				for i := range 8000 {
					r.Put(fmt.Sprint("o", i%10), fmt.Sprint(i))
					if i%500 == 0 {
						r.Until("cached", r.AtRest)
					}
				}
				r.Until("the other goes on", func() bool {
					folded, _ := other.Recording().Check()
					return folded["ns/o9"] == r.want()["ns/o9"]
				})
				r.Main.Unblock()
				r.Sync()
			},
		},
		{
			Name: "re-created while a subscriber is blocked", Section: delivery, Fill: 10,
			Holds: "it gets the latest state per key, with DELETED/ADDED boundaries kept",
			Script: func(r *Run) {
				r.Sync()
				r.Main.Block()
				for i := range 2000 {
					r.Put("o2", fmt.Sprint(i))
				}
				r.Remove("o1")
				r.Put("o1", "new")
				for i := range 2000 {
					r.Put("o3", fmt.Sprint(i))
				}
				r.Until("cached", r.AtRest)
				n := len(r.Events())
				r.Main.Unblock()
				r.Sync()
				r.Expect(r.Given(store.Deleted, n) == 1 && r.Given(store.Added, n) == 1,
					"%d DELETED and %d ADDED for a re-creation",
					r.Given(store.Deleted, n), r.Given(store.Added, n))
			},
		},
		{
			Name: "handler panics", Section: delivery, Fill: 10,
			Holds: "a handler that panics or fails is isolated: retried with back-off, skipped or stopped by policy, and " +
				"reported with key",
			Script: handlerPanics,
		},
		{
			Name: "resync", Section: delivery, Fill: 30,
			Holds:  "resync per subscriber: SYNC events from the cache, spread over the period, no request to the server",
			Config: func(c *Config) { c.Resync = 10 * time.Minute },
			Script: func(r *Run) {
				r.Sync()
				n, listed := len(r.Events()), r.Count(syncs)
				r.Pass(35 * time.Minute)
				given := len(r.Changes(n))
				r.Expect(given >= 90 && given <= 120, "%d events in three periods for 30 objects", given)
				r.Expect(r.Count(syncs) == listed, "listed for a resync")
			},
		},
		{
			Name: "handler panics on a resync", Section: delivery, Fill: 10,
			Holds: "resync per subscriber […]: one failing handler does not end later resyncs, and never a stale state after " +
				"a newer one",
			Script: func(r *Run) {
				c, ok := r.Cache.(Observing)
				if !ok {
					panic(unsupported{"has no handlers whose failures are its concern"})
				}
				resyncs := 0
				handler := c.Observe("resynced", func(e watchtest.Event) {
					if e.Type == store.Sync {
						if resyncs++; resyncs <= 15 {
							panic("not a resync")
						}
					}
				}, observe.Every(10*time.Minute), observe.OnFailure(observe.Skip, 0))
				r.others = append(r.others, handler)
				r.Sync()
				listed := r.Count(syncs)
				for i := range 40 {
					r.Put(fmt.Sprint("o", i%10), fmt.Sprint("changed ", i))
					r.Pass(time.Minute)
				}
				r.Expect(resyncs >= 35 && resyncs <= 50, "%d resyncs in four periods for 10 objects", resyncs)
				r.Expect(r.Count(syncs) == listed, "listed for a resync")
				r.Sync()
			},
		},
		{
			Name: "wait for a version", Section: delivery, Fill: 5, Untimed: true,
			Holds: "WaitFor(version) and Barrier(): returns when the store has caught up, or with the reason why not",
			Script: func(r *Run) {
				w, ok := r.Cache.(Waiter)
				if !ok {
					panic(unsupported{"cannot be waited for"})
				}
				r.Sync()
				r.Put("o1", "now")
				if err := w.WaitFor(r.Server.Version(r.Server.Revision()), 10*time.Second); err != nil {
					r.Fail("%v", err)
				}
				r.Expect(r.AtRest(), "the store is behind after WaitFor")
				r.Expect(w.WaitFor("999999999", 100*time.Millisecond) != nil, "it does not wait for the future")
			},
		},
		{
			Name: "writes without a pause", Section: delivery, Fill: 50, Untimed: true,
			Holds: "the cache is at least as new as the event that a handler is given; per key, versions never go down",
			Script: func(r *Run) {
				r.Sync()
				for i := range 1500 {
					switch name := fmt.Sprint("o", i%50); {
					case i%97 == 96:
						r.Remove(name)
						r.Put(name, "again")
					default:
						r.Put(name, fmt.Sprint(i))
					}
				}
				r.Sync()
			},
		},
	}
}

// handlerPanics runs three handlers that panic, each with another failure policy, and one that does not.
func handlerPanics(r *Run) {
	c, ok := r.Cache.(Observing)
	if !ok {
		panic(unsupported{"has no handlers whose failures are its concern"})
	}
	tries, stopped := 0, 0
	retried := c.Observe("retried", func(watchtest.Event) {
		if tries++; tries%3 != 0 {
			panic("not yet") // each event succeeds at the third attempt
		}
	}, observe.OnFailure(observe.Retry, 3))
	r.others = append(r.others, retried)
	picky := c.Observe("picky", func(e watchtest.Event) {
		if e.Key == "ns/o1" {
			panic("never")
		}
	}, observe.OnFailure(observe.Skip, 0))
	c.Observe("stopped", func(e watchtest.Event) {
		if stopped++; e.Key == "ns/o2" {
			panic("no more")
		}
	}, observe.OnFailure(observe.Stop, 0))
	calm := c.Observe("calm", func(watchtest.Event) {})
	r.others = append(r.others, calm)
	r.Sync()
	calls := stopped
	for i := range 10 {
		r.Put(fmt.Sprint("o", i), "changed")
	}
	r.Remove("o1")
	r.Expire()
	r.Put("o3", "after")
	r.Sync()
	folded, _ := picky.Recording().Check()
	r.Expect(len(folded) == 9 && maps.Equal(folded, r.want()), "the one that skips o1 has %d objects of 9", len(folded))
	r.Expect(stopped == calls, "the stopped one was called %d times more", stopped-calls)
	all := strings.Join(c.Reported(), "\n")
	for _, want := range []string{
		`observer=retried`, `observer=picky`, `observer=stopped`, `key=ns/o1`, `key=ns/o2`,
		`event given up`, `observer stopped`, `observer failed`,
	} {
		r.Expect(strings.Contains(all, want), "no report says %q", want)
	}
}
