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

// How Overlay lays the answer to a delete of many over the stores. It lists what there was to delete, as it was before,
// and says of nothing whether it is gone or has finalizers or a grace period. So each of them is asked for, and where
// they are many the store is brought up to date as a whole.

// shownObjects are objects that are to be deleted, by what they are and where.
type shownObjects map[types.UID]Key

// remember notes what the stores show of what a request is to delete, as far as that can be told here.
func (w *overlayWrite) remember(p place) {
	selector, err := labels.Parse(w.r.URL.Query().Get("labelSelector"))
	if err != nil {
		return // the server refuses it
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

// askEach is up to how many objects are asked for one by one.
const askEach = 32

// cleared brings the stores up to date with what a delete of many has left.
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
	var answered metav1.PartialObjectMetadataList // no items in a mere Status
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

// settle makes reads of a store say what the server has of each of them.
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
			// The watch may have yet to tell of its creation. One that is not selected may be there still.
			if r, ok := st.Get(key); st.Complete() && (!ok || r.UID() != uid) {
				st.PutDeleted(key, uid)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
