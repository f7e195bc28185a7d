package client

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	if err := w.server.fence(ctx); err != nil {
		return w.fail(err)
	}
	announced := w.announce(ctx)
	w.req.NotFoundOK = w.o.IgnoreNotFound && subresource == ""
	a, err := w.server.write(ctx, w.req, *w.o.Policy)
	if err != nil && pre.UID != nil && apierrors.IsConflict(err) {
		switch inDoubt := errors.Is(err, call.ErrOutcomeUnknown); { // a dry run is never in doubt
		case inDoubt && w.replaced(ctx, *pre.UID): // An earlier try deleted it. The new object of that name stays.
			announced.Absent(ctx)
			return nil
		case named && !inDoubt: // the cache was behind
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
// of the same name.
func (w *writing) incarnation(obj Object) types.UID {
	if r := w.anyContent(); r != nil {
		return r.UID()
	}
	return obj.GetUID()
}

// replaced reports whether the incarnation certainly no longer exists.
func (w *writing) replaced(ctx context.Context, uid types.UID) bool {
	now, err := w.now(ctx)
	return apierrors.IsNotFound(err) || err == nil && now.UID != uid
}
