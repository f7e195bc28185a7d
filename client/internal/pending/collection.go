package pending

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
)

// The answer to a delete of a collection lists the objects as they were before the delete. It does not state which
// objects are gone and which remain because of finalizers or a grace period. Cleared therefore asks for each object, or
// brings the whole store up to date if there are many.

// Objects maps the uids of objects to their keys.
type Objects map[types.UID]cache.Key

// Selected returns the objects of a namespace in the stores of a resource that match a selector; nil if there are none.
func (ws *Writes) Selected(resource schema.GroupVersionResource, namespace string, selector labels.Selector) Objects {
	var found Objects
	for _, st := range ws.Stores(resource) {
		for r := range st.Snapshot().InNamespace(namespace) {
			if selector.Matches(r.Labels()) {
				if found == nil {
					found = Objects{}
				}
				found[r.UID()] = r.Key()
			}
		}
	}
	return found
}

// askEach is the largest number of objects that are requested one by one.
const askEach = 32

// Cleared ends a delete of a collection. It brings the objects of the stores before the delete, and those that the
// answer names, up to date within timeout.
func (w *Write) Cleared(ctx context.Context, a *Answer, before Objects, timeout time.Duration) {
	w.Refused()
	if !w.Watched() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	affected := Objects{}
	maps.Copy(affected, before)
	var answered metav1.PartialObjectMetadataList // stays empty for a Status
	if a.Readable() && a.Decode(&answered) == nil {
		for _, o := range answered.Items {
			if o.Name != "" {
				affected[o.UID] = cache.Key{Namespace: o.Namespace, Name: o.Name}
			}
		}
	}
	var all sync.WaitGroup
	for _, in := range w.in {
		all.Go(func() {
			if err := affected.refresh(ctx, in.st); err != nil {
				w.writes.Log.WarnContext(ctx, "the cache does not show a write yet", "op", "delete collection",
					"kind", w.kindOf(in.st).Kind, "key", w.Key.String(), "error", err)
			}
		})
	}
	all.Wait()
}

// refresh brings the objects up to date in a store.
func (objects Objects) refresh(ctx context.Context, st *cache.Store) error {
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
