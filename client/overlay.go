package client

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"

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

// takeOff announces the write to every store of the kind, those with a selector too: each decides whether it concerns
// it.
func (w *writing) takeOff(ctx context.Context) *flight {
	f := &flight{w: w}
	if w.o.dryRun {
		return f
	}
	f.stores = w.c.stores(w.k)
	for _, st := range f.stores {
		wc := w.c.owner(ctx)
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

// land makes reads see what was answered: it puts the answer over the stores, and where that is not possible it brings
// the object up to date there. The write was made, whatever comes of that, so there is no error.
func (f *flight) land(ctx context.Context, a *call.Answer) {
	if len(f.writes) == 0 {
		return
	}
	w := f.w
	whole, version, gone := f.whole(a)
	if whole && gone != "" {
		// The last finalizer of a deleted object was taken away: the server has dropped it.
		for i, write := range f.writes {
			write.Deleted(gone)
			w.c.hubs.poke(f.stores[i], w.key)
		}
		return
	}
	if !whole {
		f.fail()
		if version != "" || evicts[w.sub] {
			f.settle(ctx, f.stores, version)
		}
		return
	}
	f.done(ctx, a, version)
}

// done lays the answered object over the stores, and settles those that cannot tell whether they hold it. All writes
// have ended before: else the events of the key would be held back meanwhile.
func (f *flight) done(ctx context.Context, a *call.Answer, version string) {
	w := f.w
	var unsettled []*store.Store
	for i, write := range f.writes {
		if a.Code == http.StatusCreated && w.sub == "" { // an apply may create
			write.Created()
		}
		result, err := write.Done(source.JSON, a.Raw)
		w.c.hubs.poke(f.stores[i], w.key)
		if err != nil || result == store.NeedsBarrier {
			unsettled = append(unsettled, f.stores[i])
		}
	}
	f.settle(ctx, unsettled, version)
}

// settle brings the object up to date in stores over which the answer could not be laid, all at once. Where that fails,
// readers ask the server until it is.
func (f *flight) settle(ctx context.Context, stores []*store.Store, version string) {
	if len(stores) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, f.w.c.opt.CacheTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, st := range stores {
		wg.Go(func() {
			if err := st.Settle(ctx, f.w.key, version); err != nil {
				f.w.c.log.WarnContext(ctx, "the cache does not show a write yet", "op", f.w.op(), "kind", f.w.k.gvk.Kind, "key", f.w.key.String(),
					"version", version, "error", err)
			}
			f.w.c.hubs.poke(st, f.w.key)
		})
	}
	wg.Wait()
}

// evicts are the subresources whose create changes the object without an answer that shows it.
var evicts = map[string]bool{"eviction": true, "binding": true}

// whole says whether the answer is the object itself, as that of a status is. Of other subresources (a Scale) only the
// version is of use. gone is the uid of an object that the write has brought to its end.
func (f *flight) whole(a *call.Answer) (whole bool, version string, gone types.UID) {
	if h := f.w.scan(a); h != nil && len(h.DeletionTimestamp) == 0 {
		return string(h.Kind) == f.w.k.gvk.Kind, string(h.ResourceVersion), ""
	}
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

// keptBySpec says whether the answered object is kept by the finalizers of its spec, as a namespace that is being
// deleted is until it is empty.
func keptBySpec(k *kind, a *call.Answer) bool {
	if k.gvk != corev1.SchemeGroupVersion.WithKind("Namespace") {
		return false
	}
	var ns struct{ Spec struct{ Finalizers []string } }
	return json.Unmarshal(a.Raw, &ns) == nil && len(ns.Spec.Finalizers) > 0
}
