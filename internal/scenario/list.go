package scenario

import (
	"fmt"
	"net/url"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func noWatchList(c *Config) { c.NoWatchList = true }

func pagesOf(n int) func(*Config) {
	return func(c *Config) { c.NoWatchList, c.PageSize = true, n }
}

// listScenarios are about the first list.
func listScenarios() []Scenario {
	synced := func(r *Run) { r.Sync() }
	return []Scenario{
		{
			Name: "initial events", Section: startAndList, Fill: 30, Untimed: true,
			Holds: "WatchList (sendInitialEvents=true, resourceVersionMatch=NotOlderThan, bookmarks) where the server " +
				"supports it",
			Script: func(r *Run) {
				r.Sync()
				r.Expect(r.Count(lists) == 0, "%d lists were sent", r.Count(lists))
				r.Until("SYNCED is given once", func() bool { return r.Given(store.Synced, 0) == 1 })
			},
		},
		{
			Name: "initial events refused", Section: startAndList, Fill: 30, Untimed: true,
			Holds:  "any refusal […] falls back to a paged LIST",
			Server: func(o *apiserver.Options) { o.NoWatchList = true }, Script: synced,
		},
		{
			Name: "initial events cut short", Section: startAndList, Fill: 30,
			Holds:  "a stream that ends early […] falls back to a paged LIST within a budget",
			Before: func(r *Run) { r.Server.On(watchLists, apiserver.EndAfter(3)) },
			Script: func(r *Run) { r.Within("synced", 5*time.Minute, r.AtRest) },
		},
		{
			Name: "end of initial events never comes", Section: startAndList, Fill: 30,
			Holds:  "an end bookmark that never comes falls back to a paged LIST within a budget",
			Before: func(r *Run) { r.Server.On(watchLists, apiserver.NoInitialEventsEnd()) },
			Script: func(r *Run) { r.Within("synced", 5*time.Minute, r.AtRest) },
		},
		{
			Name: "old server without objects", Section: startAndList,
			Holds: "very old servers ignore sendInitialEvents; an end bookmark that never comes falls back to a paged LIST " +
				"within a budget",
			Before: func(r *Run) { r.Server.On(watchLists, ignoreInitialEvents()) },
			Script: func(r *Run) {
				r.Within("SYNCED is given", 6*time.Second, func() bool { return r.Given(store.Synced, 0) == 1 })
				r.Put("o1", "first")
				r.Sync()
			},
		},
		{
			Name: "old server with objects", Section: startAndList, Fill: 30,
			Holds: "very old servers ignore sendInitialEvents; an end bookmark that never comes falls back to a paged LIST " +
				"within a budget",
			Before: func(r *Run) { r.Server.On(watchLists, ignoreInitialEvents()) },
			Script: func(r *Run) { r.Within("synced", 6*time.Second, r.AtRest) },
		},
		{
			Name: "slow initial events", Section: startAndList, Fill: 30,
			Holds: "no total deadline on a list that makes progress",
			Before: func(r *Run) {
				r.hold = r.Server.HoldEvents(watchLists)
				r.hold.Allow(10)
			},
			Script: func(r *Run) {
				r.Pass(8 * time.Second)
				r.hold.Release()
				r.Sync()
				r.Expect(r.Count(syncs) == 1, "%d lists were sent", r.Count(syncs))
			},
		},
		{
			Name: "plain bookmark in initial events", Section: startAndList, Fill: 30,
			Holds:  `only the bookmark with annotation k8s.io/initial-events-end: "true" ends the initial list`,
			Before: func(r *Run) { r.Server.On(watchLists, apiserver.PlainInitialEventsEnd()) },
			Script: func(r *Run) {
				r.Pass(5 * time.Second)
				r.Expect(len(r.Cache.Cached()) == 0 || r.Count(lists) > 1, "an ordinary bookmark ended the initial events")
				r.Within("synced", 5*time.Minute, r.AtRest)
			},
		},
		{
			Name: "changes within initial events", Section: startAndList, Fill: 10,
			Holds: "MODIFIED and DELETED before it count; the result is applied atomically",
			Before: func(r *Run) {
				r.hold = r.Server.HoldEvents(watchLists)
				r.hold.Allow(5)
			},
			Script: changesWithinInitialEvents,
		},
		{
			Name: "pages", Section: startAndList, Fill: 43, Config: pagesOf(5), Untimed: true,
			Holds: "pages follow continue without a resourceVersion",
			Script: func(r *Run) {
				r.Sync()
				for _, q := range r.Server.Log().Select(lists) {
					r.Expect(q.Query.Get("continue") == "" || q.Query.Get("resourceVersion") == "",
						"a page was asked for with a version")
				}
			},
		},
		{
			Name: "continue token expires once", Section: startAndList, Fill: 43, Config: pagesOf(5), Untimed: true,
			Holds: "an expired token (410) restarts the list, and a partial list is never applied",
			Before: func(r *Run) {
				r.Server.On(apiserver.Match{Verb: "list", Page: 4, Times: 1}, apiserver.ExpireContinue(true))
			},
			Script: synced,
		},
		{
			Name: "continue token always expires", Section: startAndList, Fill: 43, Config: pagesOf(5),
			Holds:  "restarts the list, bounded",
			Before: func(r *Run) { r.Server.On(lists, apiserver.ExpireContinue(false)) },
			Script: func(r *Run) {
				r.Sync()
				r.Expect(r.Count(lists) < 20, "%d requests for one list", r.Count(lists))
			},
		},
		{
			Name: "page fails", Section: startAndList, Fill: 43, Config: pagesOf(5), Untimed: true,
			Holds: "a partial list is never applied",
			Before: func(r *Run) {
				r.Server.On(apiserver.Match{Verb: "list", Page: 3, Times: 2}, apiserver.Answer(apiserver.Failure(500)))
			},
			Script: synced,
		},
		{
			Name: "list is cut", Section: startAndList, Fill: 43, Config: noWatchList, Untimed: true,
			Holds:  "a body that is cut […] is a typed protocol error and changes nothing",
			Before: func(r *Run) { r.Server.On(times(lists, 2), apiserver.Cut(1500)) }, Script: synced,
		},
		{
			Name: "list is HTML", Section: startAndList, Fill: 5, Config: noWatchList,
			Holds:  "HTML […] is a typed protocol error",
			Before: func(r *Run) { r.Server.On(lists, apiserver.HTML(200)) },
			Script: func(r *Run) { r.Condition(source.ReasonProtocolError); r.Server.ClearFaults(); r.Sync() },
		},
		{
			Name: "list is a Table", Section: startAndList, Fill: 5, Config: noWatchList,
			Holds:  "a Table […] is a typed protocol error",
			Before: func(r *Run) { r.Server.On(lists, apiserver.Table()) },
			Script: func(r *Run) { r.Condition(source.ReasonProtocolError); r.Server.ClearFaults(); r.Sync() },
		},
		{
			Name: "list has no version", Section: startAndList, Fill: 5, Config: noWatchList,
			Holds:  "without resourceVersion is a typed protocol error",
			Before: func(r *Run) { r.Server.On(lists, apiserver.NoListVersion()) },
			Script: func(r *Run) { r.Condition(source.ReasonProtocolError); r.Server.ClearFaults(); r.Sync() },
		},
		{
			Name: "list names objects twice", Section: startAndList, Fill: 20, Config: noWatchList, Untimed: true,
			Holds:  "the result is applied atomically: each object is ADDED once",
			Before: func(r *Run) { r.Server.On(lists, apiserver.DuplicateItems()) }, Script: synced,
		},
		{
			Name: "slow list", Section: startAndList, Fill: 60, Config: noWatchList,
			Holds:  "no total deadline on a list that makes progress",
			Before: func(r *Run) { r.Server.On(times(lists, 1), apiserver.Drip(400, 20*time.Second)) },
			Script: func(r *Run) {
				r.Sync()
				r.Expect(r.Count(syncs) == 1, "%d lists were sent", r.Count(syncs))
			},
		},
		{
			Name: "list without an answer", Section: startAndList, Fill: 10, Config: noWatchList,
			Holds:  "one without progress is aborted and retried on a new connection",
			Before: func(r *Run) { r.Server.On(times(lists, 1), apiserver.BlackHole()) },
			Script: func(r *Run) { r.Within("synced", 3*time.Minute, r.AtRest) },
		},
		{
			Name: "list stops in the middle", Section: startAndList, Fill: 60, Config: noWatchList,
			Holds:  "one without progress is aborted and retried on a new connection",
			Before: func(r *Run) { r.Server.On(times(lists, 1), apiserver.Drip(2000, 10*time.Hour)) },
			Script: func(r *Run) { r.Within("synced", 3*time.Minute, r.AtRest) },
		},
	}
}

// changesWithinInitialEvents sends MODIFIED and DELETED while half of the initial events are held back.
func changesWithinInitialEvents(r *Run) {
	r.Until("a WatchList is open", func() bool { return len(r.Server.Watches(watchLists)) == 1 })
	r.Put("o1", "changed")
	r.Put("o2", "changed")
	changed, err := r.Server.Object(ConfigMaps, "ns", "o1")
	gone, err2 := r.Server.Object(ConfigMaps, "ns", "o2")
	if err != nil || err2 != nil {
		panic(fmt.Sprint(err, err2))
	}
	r.Remove("o2")
	gone.SetResourceVersion(r.Server.Version(r.Server.Revision()))
	for _, w := range r.Server.Watches(watchLists) {
		w.Send("MODIFIED", r.encode(changed))
		w.Send("DELETED", r.encode(gone))
	}
	r.hold.Release()
	r.Sync()
	for _, e := range r.Changes(0) {
		r.Expect(e.Key != "ns/o2" || e.Type != store.Added || r.Given(store.Deleted, 0) > 0,
			"o2 was given although it was deleted")
	}
}

// ignoreInitialEvents answers a WatchList like a server that does not know WatchList.
func ignoreInitialEvents() apiserver.Fault {
	return apiserver.Query(func(q url.Values) { q.Del("sendInitialEvents"); q.Del("resourceVersionMatch") })
}
