package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

func (c *Client) delete(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := c.begin(ctx, call.VerbDelete, subresource, obj, opts)
	if err != nil {
		return err
	}
	pre := &metav1.Preconditions{}
	if w.o.SameUID {
		uid := obj.GetUID()
		if uid == "" {
			return w.fail(ErrNoUID)
		}
		pre.UID = &uid
	}
	if w.o.SameVersion {
		version := obj.GetResourceVersion()
		if version == "" {
			return w.fail(errNoVersion)
		}
		pre.ResourceVersion = &version
	}
	named := *pre == (metav1.Preconditions{}) // no precondition: any object of this name is to be deleted
	if known := w.incarnation(obj); named && known != "" && subresource == "" {
		pre.UID = &known
	}
	w.req.Object = deleteOptions(&w.o, pre)
	if body := w.o.Body; body != nil { // an action of a subresource; its body replaces the options
		if subresource == "" || !named || w.o.DryRun || w.o.Grace != nil || w.o.Propagation != "" {
			return w.fail(errors.New("a Body and other options of the delete exclude each other"))
		}
		w.req.Object, named = body, false
	}
	if err := c.fence(ctx); err != nil {
		return w.fail(err)
	}
	f := w.takeOff(ctx)
	w.req.NotFoundOK = w.o.IgnoreNotFound && subresource == ""
	a, err := call.Do(ctx, c.call, w.req, c.fenced(ctx, *w.o.Policy))
	if err != nil && pre.UID != nil && apierrors.IsConflict(err) {
		switch inDoubt := errors.Is(err, call.ErrOutcomeUnknown); { // a dry run is never in doubt
		case inDoubt && w.replaced(ctx, *pre.UID): // An earlier try deleted it. The new object of that name stays.
			f.absent(ctx)
			return nil
		case named && !inDoubt: // the cache was behind
			w.req.Object = deleteOptions(&w.o, nil) // delete any object of this name, as requested
			a, err = call.Do(ctx, c.call, w.req, c.fenced(ctx, *w.o.Policy))
		}
	}
	if w.o.Answered != nil && err == nil && a != nil && len(a.Raw) > 0 {
		w.o.Answered(a.Raw)
	}
	switch {
	case err == nil && a == nil, // the object does not exist
		err == nil && len(a.Raw) == 0 && subresource == "", // an earlier try deleted it
		apierrors.IsNotFound(err) && subresource == "":
		f.absent(ctx)
	case err == nil:
		f.deleted(ctx, w.read(a))
	default:
		f.failed(ctx, err)
	}
	return err
}

// deleteOptions returns the options of a delete, all in the body: kube-apiserver ignores the query of a delete with a
// body.
func deleteOptions(o *writeoption.Options, pre *metav1.Preconditions) *metav1.DeleteOptions {
	d := &metav1.DeleteOptions{
		TypeMeta:           metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
		GracePeriodSeconds: o.Grace,
	}
	if pre != nil && *pre != (metav1.Preconditions{}) {
		d.Preconditions = pre
	}
	if o.DryRun {
		d.DryRun = []string{metav1.DryRunAll}
	}
	if o.Propagation != "" {
		d.PropagationPolicy = &o.Propagation
	}
	return d
}

// incarnation returns the uid of the object to delete, if it is known. A repeated request must not delete a new object
// of the same name.
func (w *writing) incarnation(obj Object) types.UID {
	if r := w.known(); r != nil {
		return r.UID()
	}
	return obj.GetUID()
}

// replaced reports whether the incarnation certainly no longer exists.
func (w *writing) replaced(ctx context.Context, uid types.UID) bool {
	now := &metav1.PartialObjectMetadata{}
	now.SetGroupVersionKind(w.k.gvk)
	err := w.c.Live().Get(ctx, w.key, now)
	return apierrors.IsNotFound(err) || err == nil && now.UID != uid
}

// DeleteCollection deletes the objects that sel selects. obj only determines the kind. The server's answer does not
// state which objects remain. If the kind is watched, DeleteCollection therefore lists the namespace once and stores
// the result.
func (c *Client) DeleteCollection(ctx context.Context, obj Object, sel Selection, opts ...WriteOption) error {
	k, err := c.kindOf(obj)
	if err != nil {
		return err
	}
	const op = "delete collection of"
	at := Key{Namespace: sel.Namespace}
	if err := c.fence(ctx); err != nil {
		return k.fail(op, at, err)
	}
	o := c.resolveWrite(opts)
	if o.SameUID || o.SameVersion || o.Body != nil {
		return k.fail(op, at, errors.New("a collection has neither uid nor version nor a Body"))
	}
	q := url.Values{}
	for key, value := range map[string]string{"labelSelector": sel.Labels, "fieldSelector": sel.Field} {
		if value != "" {
			q.Set(key, value)
		}
	}
	a, err := call.Do(ctx, c.call, call.Request{
		Verb: call.VerbDeleteCollection, Resource: k.gvr, Kind: k.gvk.Kind, Namespace: sel.Namespace, Query: q,
		Object: deleteOptions(&o, nil),
	}, c.fenced(ctx, *o.Policy))
	if err != nil || o.DryRun {
		return err
	}
	if err := c.relist(ctx, k, sel.Namespace, a.Raw); err != nil {
		return k.fail(op, at, fmt.Errorf("%w: %w", ErrCacheBehind, err))
	}
	return nil
}

// relist lists a namespace from the server and stores the changes. It removes objects that the list lacks if a store
// showed them before the list began, or if the answer to the delete names them.
func (c *Client) relist(ctx context.Context, k *kind, namespace string, answer []byte) error {
	stores := c.stores(k)
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
	unsettled := map[*cache.Store]bool{}
	req := call.Request{Resource: k.gvr, Kind: k.gvk.Kind, Namespace: namespace, Query: url.Values{}}
	for page, err := range call.Pages(ctx, c.call, req, call.Policy{PageSize: call.CachePage}) {
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
				unsettled[st] = unsettled[st] || result == store.NeedsBarrier
			}
		}
	}
	for i, st := range stores {
		for _, m := range named.Items {
			if _, shown := before[i][m.UID]; !shown && !there[m.UID] { // the watch has not delivered its creation yet
				st.PutDeleted(KeyOf(&m), m.UID)
				c.hubs.poke(st, KeyOf(&m))
			}
		}
		for uid, key := range before[i] {
			if there[uid] {
				continue
			}
			if r, ok := st.Get(key); ok && r.UID() == uid { // otherwise the watch has delivered the change
				st.PutDeleted(key, uid)
			}
			c.hubs.poke(st, key)
		}
		if unsettled[st] { // Only the watch can tell whether a remaining, changed object still belongs to the store.
			if err := st.Barrier(ctx); err != nil {
				c.log.WarnContext(ctx, "the cache does not show a write yet", "op", "delete collection of", "kind", k.gvk.Kind,
					"error", err)
			}
		}
	}
	return nil
}
