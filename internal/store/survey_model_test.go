package store_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A barrier holds while a watch lags, breaks and lists again. After it, a read finds the state at the barrier's start
// or a newer one. Objects deleted before that start are missing.
func TestBarriersAgainstAModel(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"put", "put", "put", "remove", "replace", "other", "other", "allow", "allow", "cut", "compact",
		"barrier", "barrier", "version", "own", "undone", "undone", "pass",
	}
	rapid.Check(t, func(rt *rapid.T) {
		type op struct {
			kind, key string
			n         int
		}
		var ops []op
		for i := range rapid.IntRange(1, 40).Draw(rt, "length") {
			ops = append(ops, op{
				rapid.SampledFrom(kinds).Draw(rt, fmt.Sprint("op ", i)),
				rapid.SampledFrom([]string{"o0", "o1", "new"}).Draw(rt, fmt.Sprint("key ", i)),
				rapid.IntRange(1, 3).Draw(rt, fmt.Sprint("n ", i)),
			})
		}
		var mu sync.Mutex
		failure := ""
		onQuietWatch(t, apiserver.Options{}, 2, func(q *quiet) {
			hold := q.server.HoldEvents(apiserver.Match{Verb: "watch"})
			removed := map[string]uint64{} // the revision of the last removal
			var waits sync.WaitGroup
			wait := func(what string, wait func() error) {
				had, at := map[string]uint64{}, q.server.Revision()
				all, err := q.server.Objects(savedMaps)
				if err != nil {
					q.t.Fatal(err)
				}
				for _, u := range all {
					had[u.GetName()], _ = strconv.ParseUint(u.GetResourceVersion(), 10, 64)
				}
				waits.Go(func() {
					err := wait()
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						failure = fmt.Sprintf("%v: %s: %v", ops, what, err)
					}
					now := q.Snapshot()
					for _, name := range []string{"o0", "o1", "new"} {
						r, ok := now.Get(store.Key{Namespace: "ns", Name: name})
						version, there := had[name]
						switch {
						case there && !ok && removed[name] <= at:
							failure = fmt.Sprintf("%v: %s at %d: %s is missing", ops, what, at, name)
						case ok:
							have, _ := strconv.ParseUint(r.Version(), 10, 64)
							if there && have < version || !there && have <= at {
								failure = fmt.Sprintf("%v: %s at %d: %s is read at %d, the server had %d", ops, what, at, name, have, version)
							}
						}
					}
				})
			}
			for i, o := range ops {
				switch o.kind {
				case "put":
					q.put(o.key, fmt.Sprint(i))
				case "remove", "replace":
					if q.server.Remove(savedMaps, "ns", o.key) == nil {
						mu.Lock()
						removed[o.key] = q.server.Revision()
						mu.Unlock()
						if o.kind == "replace" {
							q.put(o.key, fmt.Sprint(i))
						}
					}
				case "other":
					q.other()
				case "allow":
					hold.Allow(o.n)
				case "cut", "compact":
					if o.kind == "compact" {
						q.server.Compact(q.server.Revision())
					}
					for _, w := range q.server.Watches(apiserver.Match{}) {
						w.Cut()
					}
				case "barrier":
					wait("barrier", func() error { return q.Barrier(q.ctx) })
				case "version":
					version := fmt.Sprint(q.server.Revision())
					wait("version", func() error { return q.WaitFor(q.ctx, version) })
				case "own":
					q.own(o.key)
				case "undone": // an own write that another client reverts at once
					q.own(o.key)
					mu.Lock()
					if err := q.server.Remove(savedMaps, "ns", o.key); err != nil {
						q.t.Error(err)
					}
					removed[o.key] = q.server.Revision()
					mu.Unlock()
				case "pass":
					<-time.After(time.Duration(o.n) * 400 * time.Millisecond)
				}
				synctest.Wait()
			}
			hold.Release()
			waits.Wait()
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}
