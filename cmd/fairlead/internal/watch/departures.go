package watch

import (
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// departures filters changes of objects whose slot has left this process while the changes were pending. It shows only
// that such objects leave. The zero value is ready for use.
type departures struct {
	unseen map[cache.Key]struct{} // added but never shown, so their end is not shown either
	out    []store.Event
}

// filter returns the events of a batch to show. For slots that were lost, not handed over, another process may report
// deletions, so they are shown as left here. The slice is valid until the next call.
func (d *departures) filter(held, lost shard.Set, batch []store.Event) []store.Event {
	d.out = d.out[:0]
	for _, e := range batch {
		if e.Object != nil {
			ns, uid := e.Key.Namespace, e.Object.UID()
			if d.hides(&e, held.Has(ns, uid)) {
				continue
			}
			if e.Type == store.Deleted && lost.Has(ns, uid) {
				e.Type = store.Left
			}
		}
		d.out = append(d.out, e)
	}
	return d.out
}

// hides reports whether a change is not shown.
func (d *departures) hides(e *store.Event, held bool) bool {
	_, unseen := d.unseen[e.Key]
	ends := e.Type == store.Deleted || e.Type == store.Left
	switch {
	case unseen && ends:
		delete(d.unseen, e.Key)
	case !unseen && !held && e.Type == store.Added:
		if d.unseen == nil {
			d.unseen = map[cache.Key]struct{}{}
		}
		d.unseen[e.Key] = struct{}{}
	}
	return unseen || !held && !ends
}
