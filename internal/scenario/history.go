package scenario

import (
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// silenceScenarios are about watches that send no frames.
func silenceScenarios() []Scenario {
	return []Scenario{
		{
			Name: "silent watch", Section: watchSection, Fill: 10,
			Holds: "silence: no frame and no bookmark for longer than the silence budget → […] the stream is resumed",
			Script: func(r *Run) {
				r.Sync()
				r.Server.On(times(plainWatches, 1), apiserver.Silent(), apiserver.IgnoreTimeout())
				r.Server.DropConnections()
				r.Pass(30 * time.Second)
				r.Put("o1", "unheard")
				r.Within("caught up", 5*time.Minute, r.AtRest)
			},
		},
		{
			Name: "every watch is silent", Section: watchSection, Fill: 10,
			Holds: "… without an event or bookmark at or after p it is relisted, at a bounded rate",
			Script: func(r *Run) {
				r.Sync()
				sent := r.Count(everything)
				r.Server.On(plainWatches, apiserver.Silent(), apiserver.IgnoreTimeout())
				r.Server.DropConnections()
				r.Pass(30 * time.Second)
				r.Put("o1", "unheard")
				r.Within("caught up", 10*time.Minute, r.AtRest)
				r.Pass(time.Hour)
				n := r.Count(everything) - sent
				r.Expect(n < 300, "%d requests in an hour", n)
			},
		},
		{
			Name: "idle for three hours", Section: watchSection, Fill: 10,
			Holds: "an idle one causes no storm",
			Script: func(r *Run) {
				r.Sync()
				sent, listed := r.Count(everything), r.Count(syncs)
				r.Server.On(watches, apiserver.NoBookmarks())
				r.Server.DropConnections()
				for range 18 {
					r.Pass(10 * time.Minute)
					r.Elsewhere()
				}
				n := r.Count(everything) - sent
				r.Expect(n < 400, "%d requests in three hours", n)
				r.Expect(r.Count(syncs)-listed < 60, "%d lists in three hours", r.Count(syncs)-listed)
			},
		},
		{
			Name: "watch without an answer", Section: watchSection, Fill: 10,
			Holds: "silence: no frame and no bookmark for longer than the silence budget",
			Script: func(r *Run) {
				r.Sync()
				r.Server.On(times(plainWatches, 1), apiserver.BlackHole())
				r.Server.DropConnections()
				r.Pass(5 * time.Second)
				r.Put("o1", "unheard")
				r.Within("caught up", 5*time.Minute, r.AtRest)
			},
		},
	}
}

// historyScenarios are about resource versions and rolled-back history.
func historyScenarios() []Scenario {
	return []Scenario{
		{
			Name: "history rolled back under a watch", Section: watchSection, Fill: 40,
			Holds: "rolled-back history is detected by the probe, a bookmark or a list […]; then one EPOCH event, a full " +
				"difference by uid and content",
			Script: rollback(func(*Run) {}),
		},
		{
			Name: "history rolled back while away", Section: watchSection, Fill: 40,
			Holds:  "rolled-back history is detected by […] a list […]; then one EPOCH event",
			Script: rollback(func(r *Run) { r.Server.DropConnections() }),
		},
		{
			Name: "history rolled back and caught up", Section: watchSection, Fill: 40,
			Holds: "lower versions are accepted",
			Script: func(r *Run) {
				rollback(func(*Run) {})(r)
				for i := range 30 {
					r.Put(fmt.Sprint("o", i), "second history")
				}
				r.Remove("o7")
				r.Sync()
			},
		},
		{
			Name: "versions without order", Section: watchSection, Fill: 20, Untimed: true,
			Holds: "versions that are not comparable numbers (odd aggregated servers): equality-only mode, everything else " +
				"works",
			Server: func(o *apiserver.Options) { o.OpaqueVersions = true },
			Script: func(r *Run) {
				r.Sync()
				for i := range 12 {
					r.Put(fmt.Sprint("o", i), "changed")
				}
				r.Remove("o3")
				r.Until("caught up", r.AtRest)
				r.Away(func() { r.Put("o4", "while away"); r.Remove("o5") })
				r.Sync()
			},
		},
	}
}

// rollback restores an older state of the server, as an etcd restore from a backup does, and then runs then.
func rollback(then func(*Run)) func(*Run) {
	return func(r *Run) {
		r.Sync()
		at := r.Server.Revision()
		for i := range 20 {
			r.Put(fmt.Sprint("o", i), "will be undone")
		}
		r.Remove("o30")
		r.Put("unborn", "1")
		r.Until("caught up", r.AtRest)
		r.Pass(time.Minute)
		if err := r.Server.Rollback(at); err != nil {
			panic(err)
		}
		then(r)
		r.Within("what was restored is seen", 10*time.Minute, r.AtRest)
		r.Expect(r.Given(store.Epoch, 0) == 1, "%d EPOCH events", r.Given(store.Epoch, 0))
	}
}

// conditionScenarios are about the status that a subject reports.
func conditionScenarios() []Scenario {
	refused := func(code int, reason source.Reason) func(*Run) {
		return func(r *Run) {
			r.Sync()
			rule := r.Server.On(everything, apiserver.Answer(apiserver.Failure(code)))
			r.Server.DropConnections()
			r.Condition(reason)
			r.Pass(10 * time.Minute)
			s := r.Status()
			r.Expect(s.Reason != reason || s.Message != "", "the condition has no message")
			r.Expect(s.Reason != reason || s.Staleness(time.Now()) > 9*time.Minute, "the cache is said to be %s old",
				s.Staleness(time.Now()))
			rule.Off()
			r.Put("o1", "after")
			r.Within("it recovers", 3*time.Minute, r.AtRest)
			r.Condition(source.ReasonWatching)
		}
	}
	return []Scenario{
		{
			Name: "unauthorized for a while", Section: conditions, Fill: 5, Script: refused(401, source.ReasonUnauthorized),
			Holds: "401 […] a typed condition with the server's own message, since when, and the age of the cached data; " +
				"recovers by itself",
		},
		{
			Name: "forbidden for a while", Section: conditions, Fill: 5, Script: refused(403, source.ReasonForbidden),
			Holds: "403 […] a typed condition with the server's own message, since when, and the age of the cached data; " +
				"recovers by itself",
		},
		{
			Name: "conversion webhook fails", Section: conditions, Fill: 5, Script: refused(500, source.ReasonServerError),
			Holds: "conversion webhook failures […] become a typed condition; recovers by itself",
		},
		{
			Name: "resource is not served yet", Section: conditions, Fill: 5,
			Holds:  "404 (resource not there yet) […] recovers by itself (created CRD)",
			Before: func(r *Run) { r.Server.Withdraw(ConfigMaps) },
			Script: func(r *Run) {
				r.Condition(source.ReasonNotFound)
				r.Pass(5 * time.Minute)
				serveAgain(r)
				r.Within("synced", 3*time.Minute, r.AtRest)
			},
		},
		{
			Name: "resource is removed and comes back", Section: conditions, Fill: 5,
			Holds: "404 (removed while watching) […] recovers by itself",
			Script: func(r *Run) {
				r.Sync()
				r.Server.Withdraw(ConfigMaps)
				r.Condition(source.ReasonNotFound)
				r.Pass(5 * time.Minute)
				serveAgain(r)
				r.Put("o1", "back")
				r.Within("synced", 3*time.Minute, r.AtRest)
				r.Condition(source.ReasonWatching)
			},
		},
		{
			Name: "no connection", Section: conditions, Fill: 5,
			Holds: "TLS and DNS errors become a typed condition; staleness is known",
			Script: func(r *Run) {
				r.Sync()
				r.Server.Down()
				r.Condition(source.ReasonDisconnected)
				r.Pass(5 * time.Minute)
				age := r.Status().Staleness(time.Now())
				r.Expect(age > 4*time.Minute, "the cache is said to be %s old", age)
				if err := r.Server.Up(); err != nil {
					panic(err)
				}
				r.Put("o1", "after")
				r.Within("it recovers", 3*time.Minute, r.AtRest)
				r.Condition(source.ReasonWatching)
			},
		},
		{
			Name: "token is rotated", Section: conditions, Fill: 5,
			Holds:  "recovers by itself (rotated token)",
			Server: func(o *apiserver.Options) { o.Token = "first" },
			Script: func(r *Run) {
				r.Sync()
				r.Server.SetToken("second")
				r.Server.DropConnections()
				r.Condition(source.ReasonUnauthorized)
				r.Server.SetToken("first")
				r.Put("o1", "after")
				r.Within("it recovers", 3*time.Minute, r.AtRest)
			},
		},
		{
			Name: "one namespace is forbidden", Section: conditions, Fill: 5,
			Holds:  "other sources go on",
			Config: func(c *Config) { c.Namespaces = []string{"ns", "closed"} },
			Before: func(r *Run) {
				r.PutIn("closed", "secret", "1", nil)
				r.Server.On(apiserver.Match{Resource: "configmaps", Namespace: "closed"}, apiserver.Answer(apiserver.Failure(403)))
			},
			Script: func(r *Run) {
				open := func() bool {
					for i := range 5 {
						if r.Cache.Cached()[fmt.Sprint("ns/o", i)] != r.want()[fmt.Sprint("ns/o", i)] {
							return false
						}
					}
					return true
				}
				r.Until("the other namespace is there", open)
				r.Until("SYNCED is given", func() bool { return r.Given(store.Synced, 0) == 1 })
				r.Put("o1", "goes on")
				r.Until("the other namespace goes on", open)
				r.Server.ClearFaults()
				r.Within("it recovers", 3*time.Minute, r.AtRest)
			},
		},
	}
}

func serveAgain(r *Run) {
	for _, res := range apiserver.DefaultResources() {
		if res.GVR() == ConfigMaps {
			r.Server.Register(res)
		}
	}
}
