package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/source"
	"github.com/fairlead-io/fairlead/store"
)

// flight is a write that is under way, as the stores of its kind know it.
type flight struct {
	w      *writing
	stores []*store.Store
	writes []*store.Write
}

// takeOff announces the write to every store of the kind, those with a selector too: each decides whether it concerns it.
func (w *writing) takeOff(ctx context.Context) *flight {
	f := &flight{w: w}
	if w.o.dryRun {
		return f
	}
	f.stores = w.c.stores(w.k)
	for _, st := range f.stores {
		wc := bound(ctx).Write
		wc.Base, wc.Locked = nil, false
		wc.Create = w.req.Verb == call.VerbCreate && w.sub == ""
		wc.Subresource, wc.Sent = w.sub, w.sent
		if r, ok := st.Get(w.key); ok && !wc.Create && (w.version == "" || w.version == r.Version()) {
			wc.Base, wc.Locked = r, w.version != ""
		}
		f.writes = append(f.writes, st.BeginWrite(w.key, wc))
	}
	return f
}

func (f *flight) fail() {
	for _, w := range f.writes {
		w.Fail()
	}
}

// land puts the answer over the stores. Where that is not possible it waits for the cache instead; its error says that
// the write has succeeded and the cache is behind.
func (f *flight) land(ctx context.Context, a *call.Answer) error {
	if len(f.writes) == 0 {
		return nil
	}
	w := f.w
	whole, version, gone := f.whole(a)
	if whole && gone != "" {
		// The last finalizer of a deleted object was taken away: the server has dropped it.
		for i, write := range f.writes {
			write.Deleted(gone)
			w.c.hubs.poke(f.stores[i], w.key)
		}
		return nil
	}
	if !whole {
		f.fail()
		switch {
		case version != "":
			return f.wait(ctx, version)
		case evicts[w.sub]:
			return w.c.freshen(ctx, w.k, w.key)
		}
		return nil
	}
	return f.done(ctx, a)
}

// done lays the answered object over the stores, and then waits for those that cannot tell whether they hold it. All writes have ended
// before: else the events of the key would be held back meanwhile.
func (f *flight) done(ctx context.Context, a *call.Answer) error {
	w := f.w
	_, version, _ := f.whole(a)
	var behind []*store.Store
	var errs []error
	for i, write := range f.writes {
		if a.Code == http.StatusCreated && w.sub == "" { // an apply may create
			write.Created()
		}
		result, err := write.Done(source.JSON, a.Raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrCacheBehind, err))
		}
		w.c.hubs.poke(f.stores[i], w.key)
		if result == store.NeedsBarrier {
			behind = append(behind, f.stores[i])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.c.opt.CacheTimeout) // for all of them
	defer cancel()
	for _, st := range behind {
		if err := w.c.catchUp(ctx, st, w.key.Namespace, version); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return w.fail(err)
	}
	return nil
}

func (f *flight) wait(ctx context.Context, version string) error {
	for _, st := range f.stores {
		if err := f.w.c.catchUp(ctx, st, f.w.key.Namespace, version); err != nil {
			return f.w.fail(err)
		}
	}
	return nil
}

// evicts are the subresources whose create changes the object without an answer that shows it.
var evicts = map[string]bool{"eviction": true, "binding": true}

// whole says whether the answer is the object itself, as that of a status is. Of other subresources (a Scale) only the
// version is of use. gone is the uid of an object that the write has brought to its end.
func (f *flight) whole(a *call.Answer) (whole bool, version string, gone types.UID) {
	var head struct {
		Kind     string
		Metadata struct {
			UID                        types.UID
			ResourceVersion            string
			DeletionTimestamp          *string
			DeletionGracePeriodSeconds *int64
			Finalizers                 []string
		}
	}
	if a.ContentType != call.JSON || json.Unmarshal(a.Raw, &head) != nil {
		return false, "", ""
	}
	m := head.Metadata
	if keptBySpec(f.w.k, a) {
		return head.Kind == f.w.k.gvk.Kind, m.ResourceVersion, ""
	}
	if m.DeletionTimestamp != nil && len(m.Finalizers) == 0 && (m.DeletionGracePeriodSeconds == nil || *m.DeletionGracePeriodSeconds == 0) {
		gone = m.UID
	}
	return head.Kind == f.w.k.gvk.Kind, m.ResourceVersion, gone
}

// keptBySpec says whether the answered object is kept by the finalizers of its spec, as a namespace that is being deleted is until it
// is empty.
func keptBySpec(k *kind, a *call.Answer) bool {
	if k.gvk != corev1.SchemeGroupVersion.WithKind("Namespace") {
		return false
	}
	var ns struct{ Spec struct{ Finalizers []string } }
	return json.Unmarshal(a.Raw, &ns) == nil && len(ns.Spec.Finalizers) > 0
}

// catchUp waits until a store has a version of a namespace, within the client's bound.
func (c *Client) catchUp(ctx context.Context, st *store.Store, namespace, version string) error {
	ctx, cancel := context.WithTimeout(ctx, c.opt.CacheTimeout)
	defer cancel()
	if err := st.WaitForNamespace(ctx, namespace, version); err != nil {
		return fmt.Errorf("%w: %w", ErrCacheBehind, err)
	}
	return nil
}

// freshen reads an object from the server and lays what it finds over the stores.
func (c *Client) freshen(ctx context.Context, k *kind, key Key) error {
	var before []types.UID
	stores := c.stores(k)
	for _, st := range stores {
		var uid types.UID
		if r, ok := st.Get(key); ok {
			uid = r.UID()
		}
		before = append(before, uid)
	}
	a, err := call.Do(ctx, c.call, call.Request{Verb: call.VerbGet, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: key.Namespace, Name: key.Name, NotFoundOK: true}, c.opt.Policy)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCacheBehind, err)
	}
	for i, st := range stores {
		switch {
		case a != nil:
			if _, err := st.Put(source.JSON, a.Raw); err != nil {
				return k.fail("read", key, fmt.Errorf("%w: %w", ErrCacheBehind, err))
			}
		case before[i] != "":
			st.PutDeleted(key, before[i])
		}
	}
	return nil
}
