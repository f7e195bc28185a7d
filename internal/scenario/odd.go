package scenario

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// oddScenarios are about responses that are legal or occur in practice, but that clients rarely expect.
func oddScenarios() []Scenario {
	return []Scenario{
		{
			Name: "frame that can never be read is a deletion", Section: watchSection, Fill: 10,
			Holds: "no change is missed: what a frame was about that cannot be read twice, a list tells",
			Script: func(r *Run) {
				r.Sync()
				r.Server.On(plainWatches, apiserver.Rewrite(func(b []byte) []byte {
					if bytes.HasPrefix(b, []byte(`{"type":"DELETED"`)) {
						return []byte("{\"type\":\"DELETED\",\"object\":]]]\n")
					}
					return b
				}))
				r.Server.DropConnections()
				r.Remove("o3")
				r.Put("o4", "after")
				r.Within("caught up", time.Minute, r.AtRest)
				listed := r.Count(syncs)
				for i := range 5 {
					r.Remove(fmt.Sprint("o", 5+i))
				}
				r.Within("caught up with more of them", 20*time.Minute, r.AtRest)
				r.Expect(r.Count(syncs)-listed <= 3, "%d lists for five such frames", r.Count(syncs)-listed)
			},
		},
		{
			Name: "frame that breaks in the middle is a deletion", Section: watchSection, Fill: 10,
			Holds: "no change is missed: a deletion is one as long as it says of what",
			Script: noRelist(func(r *Run) {
				r.Server.On(plainWatches, apiserver.Rewrite(func(b []byte) []byte {
					if bytes.HasPrefix(b, []byte(`{"type":"DELETED"`)) {
						return bytes.Replace(b, []byte(`"uid":`), []byte(`nope"uid":`), 1)
					}
					return b
				}))
				r.Server.DropConnections()
				r.Remove("o3")
				r.Put("o4", "after")
				r.Within("caught up", time.Minute, r.AtRest)
			}),
		},
		{
			Name: "bookmark of version 0", Section: watchSection, Fill: 10,
			Holds: "resumes from the last version seen (bookmarks count): 0 is none",
			Script: func(r *Run) {
				r.Sync()
				for _, version := range []string{"0", ""} {
					r.Watching(1)
					for _, w := range r.Server.Watches(watches) {
						w.BookmarkAt(version)
					}
					r.Pass(5 * time.Second)
					r.Server.Down()
					r.Remove("o" + version + "1")
					r.Put("o2", "while away "+version)
					if err := r.Server.Up(); err != nil {
						panic(err)
					}
					r.Within("caught up", 3*time.Minute, r.AtRest)
				}
			},
			Before: func(r *Run) { r.Put("o01", "1") },
		},
		{
			Name: "Retry-After of a year", Section: watchSection, Fill: 40, Config: pagesOf(10),
			Holds: "429: honour Retry-After, within reason",
			Before: func(r *Run) {
				r.Server.On(apiserver.Match{Verb: "list", Page: 2, Times: 1}, apiserver.Answer(apiserver.TooManyRequests(1<<30)))
			},
			Script: func(r *Run) {
				r.Within("synced", 10*time.Minute, r.AtRest)
				r.Server.On(times(plainWatches, 1), apiserver.Respond(503, "text/plain", "later", "Retry-After",
					"99999999999999999999"))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Within("caught up", 10*time.Minute, r.AtRest)
			},
		},
		{
			Name: "Retry-After as a date", Section: watchSection, Fill: 10,
			Holds: "429: honour Retry-After, keep the version, no relist",
			Script: noRelist(func(r *Run) {
				until := time.Now().Add(40 * time.Second)
				r.Server.On(times(plainWatches, 1), apiserver.Respond(429, "text/plain", "busy", "Retry-After",
					until.UTC().Format(http.TimeFormat)))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Pass(30 * time.Second)
				r.Expect(!r.AtRest(), "asked again before the date")
				r.Within("caught up", time.Minute, r.AtRest)
			}),
		},
		{
			Name: "initial events cut short after a sync", Section: startAndList, Fill: 30,
			Holds: "a stream that ends early falls back to a paged LIST; a partial list is never applied",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(watchLists, apiserver.EndAfter(7))
				r.Away(func() { r.Put("o1", "changed"); r.Remove("o2") })
				r.Within("caught up", 5*time.Minute, r.AtRest)
				r.Until("told", func() bool { return len(r.Changes(n)) >= 2 })
				r.Expect(len(r.Changes(n)) == 2, "%d events for two changes", len(r.Changes(n)))
			},
		},
		{
			Name: "initial events cut within a frame", Section: startAndList, Fill: 30,
			Holds: "a stream that ends early falls back to a paged LIST; a partial list is never applied",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(times(watchLists, 3), apiserver.Cut(1234))
				r.Away(func() { r.Put("o1", "changed"); r.Remove("o2") })
				r.Within("caught up", 5*time.Minute, r.AtRest)
				r.Until("told", func() bool { return len(r.Changes(n)) >= 2 })
				r.Expect(len(r.Changes(n)) == 2, "%d events for two changes", len(r.Changes(n)))
			},
		},
		{
			Name: "continue token expires when much is known", Section: startAndList, Fill: 43, Config: pagesOf(5),
			Holds: "an expired token (410) restarts the list, bounded, and a partial list is never applied",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Server.On(apiserver.Match{Verb: "list", Page: 3, Times: 2}, apiserver.ExpireContinue(true))
				r.Away(func() { r.Put("o1", "changed"); r.Remove("o2") })
				r.Sync()
				r.Expect(len(r.Changes(n)) == 2, "%d events for two changes", len(r.Changes(n)))
			},
		},
		{
			Name: "page without objects", Section: startAndList,
			Holds:  "W11: an incomplete or implausible list is asked for again, also when it lacks nothing but what is new",
			Config: func(c *Config) { c.NoWatchList, c.PageSize, c.Labels = true, 5, "app=a" },
			Before: func(r *Run) { r.PutIn("ns", "a", "1", map[string]string{"app": "a"}) },
			Script: func(r *Run) {
				for _, page := range []int{1, 3, 4} {
					r.Sync()
					r.Server.On(apiserver.Match{Verb: "list", Page: page, Times: 1}, apiserver.EmptyList())
					r.Away(func() {
						for i := range 17 {
							r.PutIn("ns", fmt.Sprint("new", page, "-", i), "1", map[string]string{"app": "a"})
							r.Server.Compact(0)
						}
					})
					r.Within("what is new is there", time.Minute, r.AtRest)
					r.Away(func() {
						for i := range 17 {
							r.Remove(fmt.Sprint("new", page, "-", i))
						}
					})
				}
			},
		},
		{
			Name: "objects change between pages", Section: startAndList, Fill: 43, Config: pagesOf(5),
			Holds: "pages are of one snapshot, and what changes meanwhile is in the watch",
			Before: func(r *Run) {
				r.Server.On(apiserver.Match{Verb: "list", Page: 4, Times: 1}, apiserver.Before(r.recreate("o1", "o40")))
			},
			Script: func(r *Run) { r.Sync() },
		},
		{
			Name: "token expires after a re-creation between pages", Section: startAndList, Fill: 43, Config: pagesOf(5),
			Holds: "an expired token restarts the list; a changed uid is DELETED + ADDED",
			Before: func(r *Run) {
				r.Server.On(apiserver.Match{Verb: "list", Page: 4, Times: 2}, apiserver.Before(r.recreate("o1", "o40")),
					apiserver.ExpireContinue(true))
			},
			Script: func(r *Run) {
				r.Sync()
				r.Server.On(apiserver.Match{Verb: "list", Page: 3, Times: 1}, apiserver.Before(r.recreate("o1", "o42")),
					apiserver.ExpireContinue(false))
				r.Expire()
				r.Sync()
			},
		},
		{
			Name: "item with two uids", Section: startAndList, Fill: 10, Config: noWatchList,
			Holds: "the result is applied atomically: each object is ADDED once",
			Before: func(r *Run) {
				old := []byte(r.object("o3").GetUID())
				r.Server.On(lists, apiserver.DuplicateItems(), apiserver.Rewrite(func(b []byte) []byte {
					// Change the UID of the first duplicate.
					return bytes.Replace(b, old, bytes.Replace(old, []byte("0000"), []byte("ffff"), 1), 1)
				}))
			},
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				r.Away(func() { r.Put("o1", "changed") })
				r.Sync()
				r.Expect(r.Given(store.Deleted, n) == 0 && len(r.Changes(n)) == 1, "given %v", r.Events()[n:])
			},
		},
		{
			Name: "selector changes within a list", Section: lifecycle, Fill: 5,
			Holds:  "selectors can be changed while it runs",
			Config: func(c *Config) { c.Labels, c.NoWatchList, c.PageSize = "app=a", true, 2 },
			Before: func(r *Run) {
				for i := range 12 {
					r.PutIn("ns", fmt.Sprint("l", i), "1", map[string]string{"app": []string{"a", "b"}[i%2]})
				}
				r.Server.On(apiserver.Match{Verb: "list", Page: 2, Times: 1}, apiserver.Delay(time.Second))
			},
			Script: func(r *Run) {
				c := r.rescoper()
				r.Until("a list is under way", func() bool { return r.Count(lists) >= 2 })
				r.Cfg.Labels = "app=b"
				c.SetLabels("app=b")
				r.Sync()
				r.Server.On(apiserver.Match{Verb: "list", Page: 2, Times: 1}, apiserver.BlackHole())
				r.Cfg.Labels = "app in (a,b)"
				c.SetLabels(r.Cfg.Labels)
				r.Pass(time.Second)
				r.Cfg.Labels = "app=a"
				c.SetLabels("app=a")
				r.Sync()
			},
		},
		{
			Name: "namespace goes and comes within its list", Section: lifecycle, Fill: 20,
			Holds:  "namespaces can be added, changed and removed while it runs",
			Config: func(c *Config) { c.Namespaces, c.NoWatchList, c.PageSize = []string{"ns"}, true, 4 },
			Before: func(r *Run) {
				for i := range 12 {
					r.PutIn("b", fmt.Sprint("x", i), "1", nil)
				}
				r.Server.On(apiserver.Match{Verb: "list", Namespace: "b", Page: 2, Times: 1}, apiserver.BlackHole())
			},
			Script: func(r *Run) {
				c := r.rescoper()
				r.Until("the first is there", func() bool { return len(r.Cache.Cached()) == 20 })
				c.SetNamespaces("ns", "b")
				r.Pass(time.Second)
				c.SetNamespaces("ns")
				c.SetNamespaces("ns", "b")
				r.Cfg.Namespaces = []string{"ns", "b"}
				r.PutIn("b", "x1", "changed", nil)
				r.Sync()
			},
		},
		{
			Name: "history rolled back while a subscriber is blocked", Section: watchSection, Fill: 40,
			Holds: "one EPOCH event, a full difference by uid and content, and lower versions are accepted: also for who " +
				"comes late",
			Script: func(r *Run) {
				r.Join("other")
				r.Sync()
				r.Main.Block()
				at := r.Server.Revision()
				for i := range 20 {
					r.Put(fmt.Sprint("o", i), "will be undone")
				}
				r.Remove("o30")
				r.Until("caught up", r.AtRest)
				r.Pass(time.Minute)
				if err := r.Server.Rollback(at); err != nil {
					panic(err)
				}
				r.Within("what was restored is seen", 10*time.Minute, r.AtRest)
				r.Put("o1", "second history")
				r.Join("late")
				r.Remove("o2")
				r.Within("the second history is seen", 10*time.Minute, r.AtRest)
				r.Main.Unblock()
				r.Sync()
				r.Expect(r.Given(store.Epoch, 0) == 1, "%d EPOCH events", r.Given(store.Epoch, 0))
			},
		},
		{
			Name: "replica lags right after a rollback", Section: watchSection, Fill: 40,
			Holds: "an answer from a lagging replica is refused and retried: no time travel",
			Script: func(r *Run) {
				rollback(func(*Run) {})(r)
				behind := r.Server.Revision()
				for i := range 5 {
					r.Put(fmt.Sprint("o", i), "second history")
				}
				r.Remove("o7")
				r.Sync()
				n := len(r.Events())
				r.Server.On(times(syncs, 1), apiserver.Lagging(behind))
				r.Expire()
				r.Pass(2 * time.Minute)
				r.Sync()
				r.Expect(len(r.Changes(n)) == 0, "nothing had changed, given %v", r.Events()[n:])
				r.Expect(r.Given(store.Epoch, 0) == 1, "%d EPOCH events", r.Given(store.Epoch, 0))
			},
		},
		{
			Name: "answers are compressed unasked", Section: watchSection, Fill: 30,
			Holds: "frames arrive in any fragmentation; what a proxy compresses is read all the same",
			Before: func(r *Run) {
				r.Cfg.REST.Wrap(func(next http.RoundTripper) http.RoundTripper { return compressor{next} })
			},
			Script: func(r *Run) {
				r.Within("synced", time.Minute, r.AtRest)
				r.Put("o1", "changed")
				r.Within("a change arrives", time.Second, r.AtRest)
				r.Away(func() { r.Remove("o2") })
				r.Within("caught up", time.Minute, r.AtRest)
				r.Server.On(plainWatches, apiserver.Answer(apiserver.Failure(403)))
				r.Server.DropConnections()
				r.Condition(source.ReasonForbidden)
				r.Expect(r.Status().Message == "forbidden", "the message is %q", r.Status().Message)
			},
		},
		{
			Name: "server sends its clients away", Section: watchSection, Fill: 10, Untimed: true,
			Holds:  "any connection failure: resume at the last version, no relist; GOAWAY is not even one",
			Before: func(r *Run) { r.Server.On(everything, apiserver.GoAway()) },
			Script: noRelist(func(r *Run) {
				for i := range 4 {
					r.Put(fmt.Sprint("o", i), "changed")
					r.Until("caught up", r.AtRest)
					r.Watching(1)
					for _, w := range r.Server.Watches(watches) {
						w.End()
					}
					r.Remove(fmt.Sprint("o", 4+i))
					r.Until("caught up again", r.AtRest)
				}
			}),
		},
		{
			Name: "versions of 40 digits", Section: watchSection, Fill: 40,
			Holds:  "versions are compared by the rules of KEP-5504, whatever their length",
			Server: func(o *apiserver.Options) { o.LongVersions = true },
			Script: func(r *Run) {
				r.Sync()
				r.Server.On(plainWatches, apiserver.ReplayEvents(3), apiserver.DuplicateEvents())
				r.Server.DropConnections()
				n := len(r.Events())
				for i := range 12 {
					r.Put(fmt.Sprint("o", i), "changed")
				}
				r.Sync()
				r.Expect(len(r.Changes(n)) == 12, "%d events for 12 changes", len(r.Changes(n)))
				r.Server.ClearFaults()
				r.Server.DropConnections()
				r.Pass(5 * time.Second)
				rollback(func(*Run) {})(r)
			},
		},
		{
			Name: "text of many bytes a letter in pieces", Section: watchSection, Fill: 5, Untimed: true,
			Holds:  "frames arrive in any fragmentation",
			Before: func(r *Run) { r.Server.On(everything, apiserver.Fragment(1, 2, 3)) },
			Script: noRelist(func(r *Run) {
				for i := range 5 {
					r.Put(fmt.Sprint("o", i), "äöü € 𝔘 \u2028 日本語 \" \\ \x00")
				}
				r.Until("caught up", r.AtRest)
			}),
		},
		{
			Name: "protobuf cut within the length", Section: watchSection, Fill: 10, Untimed: true,
			Holds:  "an incomplete one is dropped and fetched again; protobuf with a 4-byte big-endian length",
			Config: func(c *Config) { c.Protobuf = true },
			Script: noRelist(func(r *Run) {
				for i, n := range []int64{1, 2, 3, 4, 5, 100} {
					r.Server.On(times(plainWatches, 1), apiserver.Cut(n))
					r.Server.DropConnections()
					r.Put("o1", fmt.Sprint(i))
					r.Put("o2", fmt.Sprint(i))
					r.Until("caught up", r.AtRest)
				}
			}),
		},
		{
			Name: "protobuf in single bytes", Section: watchSection, Fill: 10, Untimed: true,
			Holds:  "frames arrive in any fragmentation; protobuf with a 4-byte big-endian length",
			Config: func(c *Config) { c.Protobuf = true },
			Before: func(r *Run) { r.Server.On(everything, apiserver.Fragment(1)) },
			Script: noRelist(func(r *Run) { r.Put("o1", "changed"); r.Remove("o2"); r.Until("caught up", r.AtRest) }),
		},
	}
}

// recreate deletes and re-creates objects, once.
func (r *Run) recreate(names ...string) func(context.Context, apiserver.Request) {
	return func(context.Context, apiserver.Request) {
		for _, name := range names {
			r.Remove(name)
			r.Put(name, "again")
		}
	}
}
