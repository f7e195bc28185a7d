package watch

import (
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// elsewhere filters changes of objects whose slot has left this process while the changes were pending. It shows only
// that such objects leave. The zero value is ready for use.
type elsewhere struct {
	unseen map[cache.Key]struct{} // added but never shown, so their end is not shown either
	out    []store.Event
}

// leave returns the events of a batch to show. For slots that were lost, not handed over, another process may report
// deletions, so they are shown as left here. The slice is valid until the next call.
func (w *elsewhere) leave(held, lost shard.Set, batch []store.Event) []store.Event {
	w.out = w.out[:0]
	for _, e := range batch {
		if e.Object != nil {
			ns, uid := e.Key.Namespace, e.Object.UID()
			if w.hides(&e, held.Has(ns, uid)) {
				continue
			}
			if e.Type == store.Deleted && lost.Has(ns, uid) {
				e.Type = store.Left
			}
		}
		w.out = append(w.out, e)
	}
	return w.out
}

// hides reports whether a change is not shown.
func (w *elsewhere) hides(e *store.Event, held bool) bool {
	_, unseen := w.unseen[e.Key]
	ends := e.Type == store.Deleted || e.Type == store.Left
	switch {
	case unseen && ends:
		delete(w.unseen, e.Key)
	case !unseen && !held && e.Type == store.Added:
		if w.unseen == nil {
			w.unseen = map[cache.Key]struct{}{}
		}
		w.unseen[e.Key] = struct{}{}
	}
	return unseen || !held && !ends
}
