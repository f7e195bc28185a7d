package scenario

import (
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// quarantineScenarios are about objects that cannot be decoded.
func quarantineScenarios() []Scenario {
	labelled := func(r *Run) { r.PutIn("ns", "o3", "0", map[string]string{"a": "b"}) }
	return []Scenario{
		{
			Name: "poison object", Section: startAndList, Fill: 10, Before: poison,
			Holds:  "one object that cannot be decoded is quarantined and everything else syncs",
			Script: poisoned, Unsettled: true,
		},
		{
			Name: "poison object and a late subscriber", Section: startAndList, Fill: 10, Before: poison,
			Holds: "… visible (QUARANTINED), also to who subscribes when it has long been there",
			Script: func(r *Run) {
				r.quarantined("ns/o3")
				late := r.Join("late")
				r.Until("the late subscriber is told", func() bool {
					return slices.ContainsFunc(late.Recording().Events,
						func(e watchtest.Event) bool { return e.Type == store.QuarantinedObject })
				})
				r.Put("o3", "healthy again")
				r.Sync()
			},
		},
		{
			Name: "poison object heals in a relist", Section: startAndList, Fill: 10, Before: poison,
			Holds: "… quarantined (key, uid, version, error, raw bytes kept), until it can be read",
			Script: func(r *Run) {
				r.quarantined("ns/o3")
				r.Away(func() { r.Put("o3", "healthy again") })
				r.Sync()
				r.quarantined()
			},
		},
		{
			Name: "poison object is deleted", Section: startAndList, Fill: 10, Before: poison,
			Holds: "… quarantined, until it is gone",
			Script: func(r *Run) {
				r.quarantined("ns/o3")
				r.Remove("o3")
				r.Sync()
				r.quarantined()
			},
		},
		{
			Name: "poison object is deleted while away", Section: startAndList, Fill: 10, Before: poison,
			Holds: "… quarantined, until it is gone",
			Script: func(r *Run) {
				r.quarantined("ns/o3")
				r.Away(func() { r.Remove("o3") })
				r.Sync()
				r.quarantined()
			},
		},
		{
			Name: "object is poisoned and deleted", Section: watchSection, Fill: 10, Before: labelled,
			Holds: "one object that cannot be decoded is quarantined; its deletion is a deletion all the same",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				spoil(r)
				r.quarantined("ns/o3")
				r.Expect(r.Cache.Cached()["ns/o3"].UID != "", "what was known of it is gone")
				r.Remove("o3")
				r.Sync()
				r.quarantined()
				r.Expect(r.Given(store.Deleted, n) == 1, "%d DELETED", r.Given(store.Deleted, n))
			},
		},
		{
			Name: "object is poisoned and deleted while away", Section: watchSection, Fill: 10, Before: labelled,
			Holds: "one object that cannot be decoded is quarantined; its deletion is a deletion all the same",
			Script: func(r *Run) {
				r.Sync()
				n := len(r.Events())
				spoil(r)
				r.quarantined("ns/o3")
				r.Expire() // leads to a list that has the object, which cannot be decoded either
				r.Put("o1", "after")
				r.Until("listed again", func() bool { return r.Cache.Cached()["ns/o1"] == r.want()["ns/o1"] })
				r.quarantined("ns/o3")
				r.Expect(r.Given(store.Deleted, n) == 0, "deleted because it cannot be read")
				r.Away(func() { r.Remove("o3") })
				r.Sync()
				r.quarantined()
			},
		},
	}
}

// Quarantiner is an Instance that reports the objects it could not decode.
type Quarantiner interface {
	Quarantined() []string // keys
}

// quarantined waits until exactly these objects are quarantined. It ends the scenario for a subject without a
// quarantine.
func (r *Run) quarantined(keys ...string) {
	q, ok := r.Cache.(Quarantiner)
	if !ok {
		panic(unsupported{"does not say which objects it cannot read"})
	}
	if !r.Until("what is quarantined", func() bool { return slices.Equal(q.Quarantined(), keys) }) {
		r.Fail("quarantined is %q, not %q", q.Quarantined(), keys)
	}
}

// poison replaces the labels of o3 by a value that is not a map of strings.
func poison(r *Run) {
	r.PutIn("ns", "o3", "0", map[string]string{"a": "b"})
	spoil(r)
}

func spoil(r *Run) {
	if err := r.Server.Poison(ConfigMaps, "ns", "o3", replaceAll(`"labels":{"a":"b"}`, `"labels":"none"`)); err != nil {
		panic(err)
	}
}

func poisoned(r *Run) {
	others := func() bool {
		have := r.Cache.Cached()
		for i := range 10 {
			if _, ok := have[fmt.Sprint("ns/o", i)]; !ok && i != 3 {
				return false
			}
		}
		return true
	}
	r.Until("everything else is there", others)
	r.Put("o5", "later")
	r.Until("changes arrive", func() bool { return r.Cache.Cached()["ns/o5"] == r.want()["ns/o5"] })
	r.Until("the poison object is there, or something says that it is not", func() bool {
		_, has := r.Cache.Cached()["ns/o3"]
		return has || r.Given(store.QuarantinedObject, 0) > 0
	})
	r.Put("o3", "healthy again")
	r.Sync()
}
