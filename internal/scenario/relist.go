package scenario

import (
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/store"
)

// relistScenarios are about a list when the cache already has objects.
func relistScenarios() []Scenario {
	return []Scenario{
		{
			Name: "relist gives the difference", Section: startAndList, Fill: 50, Untimed: true,
			Holds:  "after a relist the difference to the known state is delivered, and nothing else",
			Script: difference,
		},
		{
			Name: "re-created while away", Section: startAndList, Fill: 10, Untimed: true,
			Holds: "a changed uid is DELETED + ADDED",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Away(func() { r.Remove("o1"); r.Put("o1", "new") })
				r.Sync()
				r.Expect(r.Given(store.Deleted, n) == 1 && r.Given(store.Added, n) == 1, "given %v", r.Events()[n:])
			},
		},
		{
			Name: "deleted while away", Section: startAndList, Fill: 10, Untimed: true,
			Holds: "objects that are gone become DELETED, marked as inferred, with their last known state",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Away(func() { r.Remove("o1") })
				r.Sync()
				for _, e := range r.Changes(n) {
					r.Expect(e.Type != store.Deleted || e.Inferred, "%s is not marked as inferred", e)
				}
			},
		},
		{
			Name: "empty list", Section: startAndList, Fill: 30, Config: noWatchList, Untimed: true,
			Holds: "a valid but empty list over many cached objects is confirmed by a second, consistent list before anything " +
				"is deleted",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(times(lists, 1), apiserver.EmptyList())
				r.Expire()
				r.Until("listed again", func() bool { return r.Count(lists) >= 2 })
				r.Sync()
				r.Expect(r.Given(store.Deleted, n) == 0, "W11: %d objects were deleted", r.Given(store.Deleted, n))
			},
		},
		{
			Name: "short list", Section: startAndList, Fill: 300, Config: noWatchList, Untimed: true,
			Holds: "more than N deletions learnt from one list need a second, confirming consistent list",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(times(lists, 1), apiserver.TruncateList(40))
				r.Expire()
				r.Until("listed again", func() bool { return r.Count(lists) >= 2 })
				r.Sync()
				r.Expect(r.Given(store.Deleted, n) == 0, "W11: %d objects were deleted", r.Given(store.Deleted, n))
			},
		},
		{
			Name: "list that ends by an empty page", Section: startAndList, Untimed: true,
			Holds: "W11: an incomplete, failed or implausible list deletes nothing",
			// with a selector no page has a remaining count
			Config: func(c *Config) { c.NoWatchList, c.PageSize, c.Labels = true, 5, "app=a" },
			Before: func(r *Run) {
				for i := range 30 {
					r.PutIn("ns", fmt.Sprint("l", i), "1", map[string]string{"app": "a"})
				}
			},
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(apiserver.Match{Verb: "list", Page: 3, Times: 1}, apiserver.EmptyList())
				before := r.Count(lists)
				r.Expire()
				r.Until("listed again", func() bool { return r.Count(lists) >= before+3 })
				r.Sync()
				r.Expect(r.Given(store.Deleted, n) == 0, "W11: %d objects were deleted", r.Given(store.Deleted, n))
			},
		},
		{
			Name: "many deletions that are true", Section: startAndList, Fill: 300, Untimed: true,
			Holds: "… and are applied once confirmed",
			Script: func(r *Run) {
				r.Sync()
				r.Away(func() {
					for i := range 250 {
						r.Remove(fmt.Sprint("o", i))
					}
				})
				r.Sync()
			},
		},
		{
			Name: "relist is cut", Section: startAndList, Fill: 60, Config: noWatchList, Untimed: true,
			Holds: "a body that is cut […] changes nothing",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(times(lists, 3), apiserver.Cut(1500))
				r.Expire()
				r.Until("listed again", func() bool { return r.Count(lists) >= 4 })
				r.Sync()
				r.Expect(r.Given(store.Deleted, n) == 0, "W11: %d objects were deleted", r.Given(store.Deleted, n))
			},
		},
		{
			Name: "relist meets HTML", Section: startAndList, Fill: 20, Config: noWatchList, Untimed: true,
			Holds: "HTML […] changes nothing",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(times(lists, 3), apiserver.HTML(200))
				r.Expire()
				r.Sync()
				r.Until("listed again", func() bool { return r.Count(lists) >= 4 })
				r.Expect(r.Given(store.Deleted, n) == 0, "W11: %d objects were deleted", r.Given(store.Deleted, n))
			},
		},
		{
			Name: "relist from a lagging replica", Section: watchSection, Fill: 20, Config: noWatchList,
			Holds: "an answer from a lagging replica (list older than what is known) is refused and retried: no time travel",
			Script: func(r *Run) {
				r.Sync()
				behind := r.Server.Revision()
				for i := range 10 {
					r.Put(fmt.Sprint("o", i), "new")
				}
				r.Remove("o11")
				r.Sync()
				// Some clients list without a version after the replica has refused a newer one. The replica answers
				// that, too.
				r.Server.On(times(lists, 2), apiserver.Lagging(behind))
				r.Server.On(times(plainWatches, 1), apiserver.Answer(apiserver.Expired()))
				n := len(r.Events())
				r.Server.DropConnections()
				r.Pass(time.Minute)
				r.Sync()
				r.Expect(len(r.Changes(n)) == 0, "nothing had changed, %d events were given", len(r.Changes(n)))
			},
		},
	}
}

func difference(r *Run) {
	r.Sync()
	n := len(r.Events())
	r.Away(func() {
		r.Put("o1", "changed")
		r.Remove("o2")
		r.Put("new", "1")
	})
	r.Sync()
	r.Expect(len(r.Changes(n)) == 3, "%d events for three changes", len(r.Changes(n)))
	r.Expect(r.Given(store.Modified, n) == 1, "%d MODIFIED for one change", r.Given(store.Modified, n))
}
