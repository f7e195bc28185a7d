package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// deleteCollection deletes the objects that sel selects, and brings the stores up to date.
func (wr writer) deleteCollection(ctx context.Context, obj Object, sel Selection, opts []WriteOption) error {
	k, err := wr.kinds.of(obj)
	if err != nil {
		return err
	}
	const op = "delete collection of"
	at := Key{Namespace: sel.Namespace}
	if err := wr.server.fence(ctx); err != nil {
		return k.fail(op, at, err)
	}
	o := wr.resolve(opts)
	if o.SameUID || o.SameVersion || o.Body != nil {
		return k.fail(op, at, errors.New("a collection has neither uid nor version nor a Body"))
	}
	q := url.Values{}
	for key, value := range map[string]string{"labelSelector": sel.Labels, "fieldSelector": sel.Field} {
		if value != "" {
			q.Set(key, value)
		}
	}
	a, err := wr.server.write(ctx, call.Request{
		Verb: call.VerbDeleteCollection, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: sel.Namespace, Query: q,
		Object: deleteOptions(&o, nil),
	}, *o.Policy)
	if err != nil || o.DryRun {
		return err
	}
	if err := wr.relist(ctx, k, sel.Namespace, a.Raw); err != nil {
		return k.fail(op, at, fmt.Errorf("%w: %w", ErrCacheBehind, err))
	}
	return nil
}

// relist lists a namespace from the server and stores the changes. It removes objects that the list lacks if a store
// showed them before the list began, or if the answer to the delete names them.
func (wr writer) relist(ctx context.Context, k *kind, namespace string, answer []byte) error {
	stores := wr.stores.of(k)
	if len(stores) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	var named metav1.PartialObjectMetadataList // stays empty for a Status
	if err := json.Unmarshal(answer, &named); err != nil {
		return err
	}
	before := make([]map[types.UID]Key, len(stores))
	for i, st := range stores {
		before[i] = map[types.UID]Key{}
		for r := range st.Snapshot().InNamespace(namespace) {
			before[i][r.UID()] = r.Key()
		}
	}
	there := map[types.UID]bool{}
	outdated := map[*cache.Store]bool{}
	req := call.Request{Resource: k.gvr, Kind: k.gvk.Kind, Namespace: namespace, Query: url.Values{}}
	for page, err := range call.Pages(ctx, wr.server.call, req, call.Policy{PageSize: call.CachePage}) {
		if err != nil {
			return err
		}
		if page.Restarted {
			clear(there)
		}
		for i, raw := range page.Items {
			var meta metav1.PartialObjectMetadata
			if err := page.Decode(i, &meta); err != nil {
				return err
			}
			there[meta.UID] = true
			for _, st := range stores {
				result, err := st.Put(source.JSON, raw)
				if err != nil {
					return err
				}
				outdated[st] = outdated[st] || result == store.NeedsBarrier
			}
		}
	}
	for i, st := range stores {
		for _, m := range named.Items {
			if _, shown := before[i][m.UID]; !shown && !there[m.UID] { // the watch has not delivered its creation yet
				st.PutDeleted(KeyOf(&m), m.UID)
				wr.own.pending.Changed(st, KeyOf(&m))
			}
		}
		for uid, key := range before[i] {
			if there[uid] {
				continue
			}
			if r, ok := st.Get(key); ok && r.UID() == uid { // otherwise the watch has delivered the change
				st.PutDeleted(key, uid)
			}
			wr.own.pending.Changed(st, key)
		}
		if outdated[st] { // Only the watch can tell whether a remaining, changed object still belongs to the store.
			if err := st.Barrier(ctx); err != nil {
				wr.own.pending.Log.WarnContext(ctx, "the cache does not show a write yet", "op", "delete collection of", "kind", k.gvk.Kind,
					"error", err)
			}
		}
	}
	return nil
}
