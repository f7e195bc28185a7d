package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/writeoption"
)

func (wr writer) delete(ctx context.Context, subresource string, obj Object, opts []WriteOption) error {
	w, err := wr.begin(ctx, call.VerbDelete, subresource, obj, opts)
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
	if known := incarnation(w.anyContent(), obj); named && known != "" && subresource == "" {
		pre.UID = &known
	}
	w.req.Object = deleteOptions(&w.o, pre)
	if body := w.o.Body; body != nil { // an action of a subresource; its body replaces the options
		if subresource == "" || !named || w.o.DryRun || w.o.Grace != nil || w.o.Propagation != "" {
			return w.fail(errors.New("a Body and other options of the delete exclude each other"))
		}
		w.req.Object, named = body, false
	}
	if err := w.server.fence(ctx); err != nil {
		return w.fail(err)
	}
	announced := w.announce(ctx)
	w.req.NotFoundOK = w.o.IgnoreNotFound && subresource == ""
	a, err := w.server.write(ctx, w.req, *w.o.Policy)
	if err != nil && pre.UID != nil && apierrors.IsConflict(err) {
		switch { // a dry run is never in doubt
		case errors.Is(err, call.ErrOutcomeUnknown):
			if now, readErr := w.now(ctx); replaced(now, readErr, *pre.UID) {
				announced.Absent(ctx) // An earlier try deleted it. The new object of that name stays.
				return nil
			}
		case named: // the cache was behind
			w.req.Object = deleteOptions(&w.o, nil) // delete any object of this name, as requested
			a, err = w.server.write(ctx, w.req, *w.o.Policy)
		}
	}
	if w.o.Answered != nil && err == nil && a != nil && len(a.Raw) > 0 {
		w.o.Answered(a.Raw)
	}
	switch {
	case err == nil && a == nil, // the object does not exist
		err == nil && len(a.Raw) == 0 && subresource == "", // an earlier try deleted it
		apierrors.IsNotFound(err) && subresource == "":
		announced.Absent(ctx)
	case err == nil:
		announced.Deleted(ctx, w.read(a))
	default:
		failed(ctx, announced, err)
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
// of the same name. The record may be nil.
func incarnation(r *cache.Record, obj Object) types.UID {
	if r != nil {
		return r.UID()
	}
	return obj.GetUID()
}

// replaced reports whether the incarnation certainly no longer exists. now and err are the answer to a read.
func replaced(now metav1.Object, err error, uid types.UID) bool {
	return apierrors.IsNotFound(err) || err == nil && now.GetUID() != uid
}

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
	r := relisting{
		k: k, namespace: sel.Namespace, stores: wr.stores.of(k), calls: wr.server.call, changed: wr.own.pending.Changed,
		log: wr.own.pending.Log,
	}
	if err := r.run(ctx, a.Raw); err != nil {
		return k.fail(op, at, fmt.Errorf("%w: %w", ErrCacheBehind, err))
	}
	return nil
}
