package client

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
)

// The answer to a delete of a collection lists the objects as they were before the delete. It does not state which
// objects are gone and which remain because of finalizers or a grace period. Overlay therefore asks for each object, or
// brings the whole store up to date if there are many.

// shownObjects maps the uids of objects that a request deletes to their keys.
type shownObjects map[types.UID]Key

// remember records the objects in the stores that the request selects, as far as its label selector determines them.
func (w *overlayWrite) remember(p place) {
	selector, err := labels.Parse(w.r.URL.Query().Get("labelSelector"))
	if err != nil {
		return // the server refuses the request
	}
	for _, st := range w.t.layer.stores(p.resource) {
		for r := range st.Snapshot().InNamespace(p.key.Namespace) {
			if selector.Matches(r.Labels()) {
				if w.before == nil {
					w.before = shownObjects{}
				}
				w.before[r.UID()] = r.Key()
			}
		}
	}
}

// askEach is the largest number of objects that are requested one by one.
const askEach = 32

// cleared brings the stores up to date after a delete of a collection.
func (w *overlayWrite) cleared(ctx context.Context, a *reply, patience time.Duration) {
	f := w.flight
	f.fail()
	if !f.join() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	touched := shownObjects{}
	maps.Copy(touched, w.before)
	var answered metav1.PartialObjectMetadataList // stays empty for a Status
	if a.readable() && a.decode(&answered) == nil {
		for _, o := range answered.Items {
			if o.Name != "" {
				touched[o.UID] = KeyOf(&o)
			}
		}
	}
	var all sync.WaitGroup
	for _, o := range f.on {
		all.Go(func() {
			if err := touched.settle(ctx, o.st); err != nil {
				f.log.WarnContext(ctx, "the cache does not show a write yet", "op", "delete collection",
					"kind", f.kindOf(o.st).Kind, "key", f.key.String(), "error", err)
			}
		})
	}
	all.Wait()
}

// settle brings the objects up to date in a store.
func (objects shownObjects) settle(ctx context.Context, st *cache.Store) error {
	if len(objects) > askEach {
		err := st.Barrier(ctx)
		if err != nil {
			for _, key := range objects {
				st.Doubt(key)
			}
		}
		return err
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for uid, key := range objects {
		all.Go(func() {
			err := st.Settle(ctx, key, "")
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
				return
			}
			// The watch may not have delivered the creation of this object yet. If the store has a selector, an object that
			// it lacks may still exist.
			if r, ok := st.Get(key); st.Complete() && (!ok || r.UID() != uid) {
				st.PutDeleted(key, uid)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
