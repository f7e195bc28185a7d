package main

import (
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// elsewhere keeps changes of objects whose slot has left from being shown, which had come before and were still to be
// shown: only their end is. The zero value is ready for use.
type elsewhere struct {
	unseen map[cache.Key]struct{} // they were added, and not shown: nor is their end
	out    []store.Event
}

// leave returns what is to be shown of a batch. Of slots that were lost, not handed over, another process may tell
// what was deleted: here it has left. The slice is valid until the next call.
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

// hides says that a change of an object is not to be shown.
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
