package scenario

import (
	"bytes"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
)

// noRelist runs a script and expects no list or WatchList during it.
func noRelist(script func(*Run)) func(*Run) {
	return func(r *Run) {
		r.Sync()
		r.Watching(1)
		before := r.Count(syncs)
		script(r)
		r.Sync()
		r.Expect(r.Count(syncs) == before, "listed again, %d times", r.Count(syncs)-before)
	}
}

// endScenarios are about the end of a watch and the version at which the next one resumes.
func endScenarios() []Scenario {
	return []Scenario{
		{
			Name: "server ends the watch in time", Section: watchSection, Fill: 10,
			Holds: "server closing at timeoutSeconds is normal: no relist, no error",
			Script: noRelist(func(r *Run) {
				for i := range 60 {
					r.Put(fmt.Sprint("o", i%12), fmt.Sprint(i))
					r.Pass(time.Minute)
				}
				r.Expect(r.Count(watches) > 3, "only %d watches in an hour", r.Count(watches))
			}),
		},
		{
			Name: "resume at a bookmark", Section: watchSection, Fill: 10,
			Holds: "resumes from the last version seen (bookmarks count)",
			Script: noRelist(func(r *Run) {
				r.Elsewhere()
				r.Pass(61 * time.Second) // until after a bookmark
				r.Server.Compact(0)
				r.Server.DropConnections()
				r.Pass(time.Minute)
				r.Put("o1", "after")
			}),
		},
		{
			Name: "connection breaks again and again", Section: watchSection, Fill: 10, Untimed: true,
			Holds: "any connection failure: back-off with full jitter and a cap, resume at the last version, no relist",
			Script: noRelist(func(r *Run) {
				for i := range 5 {
					r.Server.DropConnections()
					r.Put(fmt.Sprint("o", i), "changed")
					r.Put(fmt.Sprint("new", i), "1")
					r.Until("caught up", r.AtRest)
				}
			}),
		},
		{
			Name: "server is down for ten minutes", Section: watchSection, Fill: 10,
			Holds: "any connection failure: back-off with full jitter and a cap, resume at the last version, no relist",
			Script: noRelist(func(r *Run) {
				r.Server.Down()
				r.Put("o1", "while down")
				r.Pass(10 * time.Minute)
				if err := r.Server.Up(); err != nil {
					panic(err)
				}
				r.Within("caught up", 2*time.Minute, r.AtRest)
			}),
		},
		{
			Name: "watch outlives its timeout", Section: watchSection, Fill: 3, Unsettled: true,
			Holds:  "client-side maximum watch lifetime, for proxies that ignore timeoutSeconds",
			Before: func(r *Run) { r.Server.On(watches, apiserver.IgnoreTimeout()) },
			Script: func(r *Run) {
				r.Pass(2 * time.Hour)
				r.Expect(r.Count(watches) >= 4, "%d watches in two hours", r.Count(watches))
			},
		},
		{
			Name: "watch ends at once", Section: watchSection, Fill: 10,
			Holds: "an immediate end of stream, again and again at the same version, is treated as a stale version after " +
				"three times",
			Script: func(r *Run) {
				r.Sync()
				r.Watching(1)
				before, sent := r.Count(syncs), r.Count(everything)
				r.Server.On(plainWatches, apiserver.EndAfter(0))
				r.Server.DropConnections()
				r.Within("listed again", 2*time.Minute, func() bool { return r.Count(syncs) > before })
				r.Pass(30 * time.Minute)
				n := r.Count(everything) - sent
				r.Expect(n < 400, "%d requests in half an hour", n)
			},
		},
		{
			Name: "410 instead of a watch", Section: watchSection, Fill: 10, Untimed: true,
			Holds: "410, as HTTP status […]: relist at the last version (NotOlderThan)",
			Script: func(r *Run) {
				r.Sync()
				r.Server.On(times(plainWatches, 1), apiserver.Answer(apiserver.Expired()))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Sync()
			},
		},
		{
			Name: "410 as an event", Section: watchSection, Fill: 10, Untimed: true,
			Holds: "410 […] as an ERROR event: relist",
			Script: func(r *Run) {
				r.Sync()
				r.Server.On(times(plainWatches, 1), apiserver.ErrorEvent(0, apiserver.Gone()))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Remove("o2")
				r.Sync()
			},
		},
		{
			Name: "410 for the relist too", Section: watchSection, Fill: 10, Untimed: true,
			Holds: `then consistent ("") if that is refused too`,
			Script: func(r *Run) {
				r.Sync()
				versioned := apiserver.Match{Resource: "configmaps", Func: func(q apiserver.Request) bool {
					return q.Query.Get("resourceVersion") != "" && q.Query.Get("resourceVersion") != "0"
				}}
				rule := r.Server.On(versioned, apiserver.Answer(apiserver.Expired()))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Until("caught up", r.AtRest)
				rule.Off()
			},
		},
		{
			Name: "410 after each list", Section: watchSection, Fill: 10,
			Holds: "a server that answers 410 directly after each list escalates once and is then retried at a bounded rate",
			Script: func(r *Run) {
				r.Sync()
				sent := r.Count(everything)
				r.Server.On(watches, apiserver.ErrorEvent(0, apiserver.Expired()))
				r.Server.DropConnections()
				r.Pass(30 * time.Minute)
				n := r.Count(everything) - sent
				r.Expect(n < 600, "%d requests in half an hour", n)
				r.Condition(source.ReasonExpired)
			},
		},
	}
}

// troubleScenarios are about errors in response to a watch.
func troubleScenarios() []Scenario {
	return []Scenario{
		{
			Name: "version too large", Section: watchSection, Fill: 10,
			Holds: "504 with cause ResourceVersionTooLarge: wait as told, then consistent list",
			Script: func(r *Run) {
				r.Sync()
				r.Put("o1", "changed")
				r.Server.On(times(syncs, 2), apiserver.Answer(apiserver.VersionTooLarge(3)))
				r.Server.On(times(plainWatches, 1), apiserver.Answer(apiserver.Expired()))
				r.Server.DropConnections()
				r.Sync()
			},
		},
		{
			Name: "too many requests", Section: watchSection, Fill: 10,
			Holds: "429: honour Retry-After, keep the version, no relist",
			Script: noRelist(func(r *Run) {
				r.Server.On(times(watches, 3), apiserver.Answer(apiserver.TooManyRequests(7)))
				first := len(r.Server.Log().Requests)
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Pass(2 * time.Minute)
				all := r.Server.Log().Requests[first:]
				for i := 1; i < len(all); i++ {
					gap := all[i].Start.Sub(all[i-1].Start)
					r.Expect(all[i-1].Code != 429 || gap >= 7*time.Second, "asked again %s after being told to wait 7 s", gap)
				}
			}),
		},
		{
			Name: "internal error", Section: watchSection, Fill: 10,
			Holds: "500 InternalError: rewatch a bounded number of times",
			Script: noRelist(func(r *Run) {
				r.Server.On(times(watches, 2), apiserver.Answer(apiserver.Failure(500)))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Until("caught up", r.AtRest)
			}),
		},
		{
			Name: "internal error that stays", Section: watchSection, Fill: 10,
			Holds: "500 InternalError: rewatch a bounded number of times, then relist",
			Script: func(r *Run) {
				r.Sync()
				before := r.Count(syncs)
				r.Server.On(plainWatches, apiserver.ErrorEvent(0, apiserver.Failure(500)))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Within("listed again", 10*time.Minute, func() bool { return r.Count(syncs) > before })
			},
		},
		{
			Name: "object that cannot be read by the server", Section: watchSection, Fill: 10,
			Holds: "StoreReadError: relist at once",
			Script: func(r *Run) {
				r.Sync()
				r.Watching(1)
				hold := r.Server.HoldEvents(watches)
				r.Remove("o1")
				before := r.Count(syncs)
				for _, w := range r.Server.Watches(watches) {
					w.Error(apiserver.StoreReadError())
				}
				hold.Release()
				r.Within("listed again", 3*time.Second, func() bool { return r.Count(syncs) > before })
			},
		},
		{
			Name: "service unavailable", Section: watchSection, Fill: 10,
			Holds: "any connection failure: back-off, resume at the last version, no relist",
			Script: noRelist(func(r *Run) {
				r.Server.On(times(watches, 3), apiserver.Answer(apiserver.Failure(503)))
				r.Server.DropConnections()
				r.Put("o1", "changed")
				r.Until("caught up", r.AtRest)
			}),
		},
	}
}

// frameScenarios are about the byte stream of a watch.
func frameScenarios() []Scenario {
	changes := func(r *Run) {
		for i := range 20 {
			r.Put(fmt.Sprint("o", i%7), fmt.Sprint("changed ", i))
			if i%5 == 4 {
				r.Remove(fmt.Sprint("o", i%7))
			}
		}
	}
	// fault injects f into all watches except the first request.
	fault := func(f ...apiserver.Fault) func(*Run) {
		return func(r *Run) {
			r.Server.On(plainWatches, f...)
			r.Server.DropConnections()
			changes(r)
			r.Until("caught up", r.AtRest)
		}
	}
	return []Scenario{
		{
			Name: "single bytes", Section: watchSection, Fill: 10, Holds: "frames arrive in any fragmentation",
			Before: func(r *Run) { r.Server.On(watches, apiserver.Fragment(1)) }, Script: noRelist(changes), Untimed: true,
		},
		{
			Name: "odd pieces", Section: watchSection, Fill: 10, Holds: "frames arrive in any fragmentation",
			Before: func(r *Run) { r.Server.On(watches, apiserver.Fragment(7, 1, 100, 3)) }, Script: noRelist(changes),
			Untimed: true,
		},
		{
			Name: "cut within frames", Section: watchSection, Fill: 10, Untimed: true,
			Holds: "an incomplete one is dropped and fetched again",
			Script: noRelist(func(r *Run) {
				for i, n := range []int64{1, 50, 333, 700, 1234} {
					r.Server.On(times(plainWatches, 1), apiserver.Cut(n))
					r.Server.DropConnections()
					r.Put("o1", fmt.Sprint(i))
					r.Put("o2", fmt.Sprint(i))
					r.Put("o3", fmt.Sprint(i))
					r.Until("caught up", r.AtRest)
				}
			}),
		},
		{
			Name: "last frame without newline", Section: watchSection, Fill: 10, Untimed: true,
			Holds: "a last frame without newline counts if it is complete",
			Script: noRelist(func(r *Run) {
				r.Server.On(times(plainWatches, 3), apiserver.EndAfter(1),
					apiserver.Rewrite(func(b []byte) []byte { return bytes.TrimRight(b, "\n") }))
				r.Server.DropConnections()
				changes(r)
				r.Until("caught up", r.AtRest)
			}),
		},
		{
			Name: "events twice", Section: watchSection, Fill: 10, Untimed: true,
			Holds:  "replayed and older versions are suppressed and counted",
			Script: exactly(20+4, fault(apiserver.DuplicateEvents())),
		},
		{
			Name: "events replayed", Section: watchSection, Fill: 10, Untimed: true,
			Holds:  "replayed and older versions are suppressed and counted",
			Script: exactly(20+4, fault(apiserver.ReplayEvents(5))),
		},
		{
			Name: "deletion with the version of the object", Section: watchSection, Fill: 10, Untimed: true,
			Holds: "replayed and older versions are suppressed; a DELETED with the known version, as old servers send it, is " +
				"none of them",
			Script: noRelist(func(r *Run) {
				for _, name := range []string{"o3", "o9"} { // version older than the last one seen, and equal
					r.oldDeletion(name)
				}
				r.Put("o3", "again")
			}),
		},
		{
			Name: "deletion from before a re-creation", Section: watchSection, Fill: 10, Untimed: true,
			Holds: "replayed and older versions are suppressed and counted",
			Script: noRelist(func(r *Run) {
				old := r.object("o3")
				r.Remove("o3")
				r.Put("o3", "again")
				r.Sync()
				n := len(r.Events())
				for _, w := range r.Server.Watches(watches) {
					w.Send("DELETED", r.encode(old))
				}
				r.Put("o4", "after")
				r.Sync()
				r.Expect(len(r.Changes(n)) == 1, "given %v", r.Events()[n:])
			}),
		},
		{
			Name: "object of 20 MB", Section: watchSection, Fill: 3, Untimed: true, Holds: "very large objects (20 MB) work",
			Script: func(r *Run) {
				r.Sync()
				r.Put("large", string(bytes.Repeat([]byte("x"), 20<<20)))
				r.Until("it arrives by watch", r.AtRest)
				r.Expire()
				r.Put("o1", "after")
				r.Sync()
			},
		},
		{
			Name: "garbage between frames", Section: watchSection, Fill: 5, Untimed: true,
			Holds: "an incomplete one is dropped and fetched again",
			Script: func(r *Run) {
				r.Sync()
				r.Watching(1)
				for _, w := range r.Server.Watches(watches) {
					w.Write([]byte("{\"type\":\"MODIFIED\",\"object\":]]]\n"))
				}
				r.Put("o1", "after the garbage")
				r.Sync()
			},
		},
	}
}

func (r *Run) object(name string) *unstructured.Unstructured {
	o, err := r.Server.Object(ConfigMaps, "ns", name)
	if err != nil {
		panic(err) // a bug in the script
	}
	return o
}

// oldDeletion deletes an object and sends the watches the DELETED event of an old server: its object is the last
// state with the version of that state.
func (r *Run) oldDeletion(name string) {
	last := r.object(name)
	hold := r.Server.HoldEvents(watches)
	r.Remove(name)
	for _, w := range r.Server.Watches(watches) {
		w.Send("DELETED", r.encode(last))
	}
	r.Until("it is gone before the server says more", r.AtRest)
	hold.Release()
}

// exactly expects n changes while the script runs.
func exactly(n int, script func(*Run)) func(*Run) {
	return func(r *Run) {
		r.Sync()
		from := len(r.Events())
		script(r)
		r.Sync()
		r.Expect(len(r.Changes(from)) == n, "%d events for %d changes", len(r.Changes(from)), n)
	}
}
