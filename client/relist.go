package client

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// relisting brings the stores of a kind up to date after objects of a namespace were deleted together. It lists the
// namespace from the server and stores the changes. It belongs to one call and needs no lock.
type relisting struct {
	k         *kind
	namespace string // "" for all
	stores    []*cache.Store
	calls     *call.Client
	changed   func(*cache.Store, Key) // called after a change of a store
	log       *slog.Logger

	before   []map[types.UID]Key // objects that each store showed before the list began
	listed   map[types.UID]bool
	outdated map[*cache.Store]bool // only the watch can tell whether a changed object still belongs to the store
}

// run removes objects that the list lacks if a store showed them before the list began, or if the answer to the delete
// names them.
func (r *relisting) run(ctx context.Context, answer []byte) error {
	if len(r.stores) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	var named metav1.PartialObjectMetadataList // stays empty for a Status
	if err := json.Unmarshal(answer, &named); err != nil {
		return err
	}
	r.remember()
	if err := r.list(ctx); err != nil {
		return err
	}
	for i, st := range r.stores {
		r.removeAbsent(i, named.Items)
		if !r.outdated[st] {
			continue
		}
		if err := st.Barrier(ctx); err != nil {
			r.log.WarnContext(ctx, "the cache does not show a write yet", "op", "delete collection of",
				"kind", r.k.gvk.Kind, "error", err)
		}
	}
	return nil
}

// remember records what the stores show.
func (r *relisting) remember() {
	r.before = make([]map[types.UID]Key, len(r.stores))
	for i, st := range r.stores {
		r.before[i] = map[types.UID]Key{}
		for rec := range st.Snapshot().InNamespace(r.namespace) {
			r.before[i][rec.UID()] = rec.Key()
		}
	}
}

// list stores the objects of the server.
func (r *relisting) list(ctx context.Context) error {
	r.listed, r.outdated = map[types.UID]bool{}, map[*cache.Store]bool{}
	req := call.Request{Resource: r.k.gvr, Kind: r.k.gvk.Kind, Namespace: r.namespace, Query: url.Values{}}
	for page, err := range call.Pages(ctx, r.calls, req, call.Policy{PageSize: call.CachePage}) {
		if err != nil {
			return err
		}
		if page.Restarted {
			clear(r.listed)
		}
		for i, raw := range page.Items {
			var meta metav1.PartialObjectMetadata
			if err := page.Decode(i, &meta); err != nil {
				return err
			}
			r.listed[meta.UID] = true
			for _, st := range r.stores {
				result, err := st.Put(source.JSON, raw)
				if err != nil {
					return err
				}
				r.outdated[st] = r.outdated[st] || result == store.NeedsBarrier
			}
		}
	}
	return nil
}

// removeAbsent removes from store i the objects that the list lacks. named are those of the answer to the delete.
func (r *relisting) removeAbsent(i int, named []metav1.PartialObjectMetadata) {
	st := r.stores[i]
	for _, m := range named {
		if _, shown := r.before[i][m.UID]; !shown && !r.listed[m.UID] { // the watch has not delivered its creation yet
			st.PutDeleted(KeyOf(&m), m.UID)
			r.changed(st, KeyOf(&m))
		}
	}
	for uid, key := range r.before[i] {
		if r.listed[uid] {
			continue
		}
		if rec, ok := st.Get(key); ok && rec.UID() == uid { // otherwise the watch has delivered the change
			st.PutDeleted(key, uid)
		}
		r.changed(st, key)
	}
}
