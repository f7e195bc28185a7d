package apiserver

import (
	"context"
	stderrors "errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func (x *exchange) deleteOptions() (metav1.DeleteOptions, error) {
	opts, err := decodeDeleteOptions(x.r.Header.Get("Content-Type"), x.req.Body)
	if err != nil {
		return opts, err
	}
	if p := x.query.Get("propagationPolicy"); p != "" {
		policy := metav1.DeletionPropagation(p)
		opts.PropagationPolicy = &policy
	}
	if g := x.query.Get("gracePeriodSeconds"); g != "" {
		var n int64
		if _, err := fmt.Sscan(g, &n); err != nil {
			return opts, errors.NewBadRequest("gracePeriodSeconds: " + err.Error())
		}
		opts.GracePeriodSeconds = &n
	}
	return opts, nil
}

func (x *exchange) delete() error {
	if x.req.Subresource != "" {
		return errors.NewMethodNotSupported(x.groupResource(), "delete")
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	o, gone, err := x.s.remove(x.r.Context(), x.table, x.req.Namespace, x.req.Name, opts, x.dryRun() || len(opts.DryRun) > 0)
	if err != nil {
		return err
	}
	if !gone || x.table.res.ReturnsDeleted {
		return x.answerObject(http.StatusOK, o)
	}
	x.out.whole(http.StatusOK, x.enc.contentType(false), x.enc.status(metav1.Status{
		Status:  metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: o.name, Group: x.table.res.Group, Kind: x.table.res.Resource, UID: types.UID(o.uid)},
	}))
	return nil
}

// remove deletes an object, or marks it when finalizers or a grace period keep it. gone says which.
func (s *Server) remove(ctx context.Context, t *table, namespace, name string, opts metav1.DeleteOptions, dryRun bool) (o *object, gone bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		o, gone, err = s.tryRemove(t, namespace, name, opts, dryRun)
		if !stderrors.Is(err, errRaced) {
			return o, gone, err
		}
	}
}

func (s *Server) tryRemove(t *table, namespace, name string, opts metav1.DeleteOptions, dryRun bool) (*object, bool, error) {
	gr := t.res.GVR().GroupResource()
	base := s.store.get(t, objectKey(namespace, name))
	if base == nil {
		return nil, false, errors.NewNotFound(gr, name)
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && string(*p.UID) != base.uid {
			return nil, false, errors.NewConflict(gr, name, fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, base.uid))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != base.version {
			return nil, false, errors.NewConflict(gr, name, fmt.Errorf("precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", *p.ResourceVersion, base.version))
		}
	}
	next, err := base.copy()
	if err != nil { // bytes that do not decode can only be deleted as they are
		return s.erase(t, base, func(rev uint64) *object { return base.withVersion(s.store.version, rev) }, dryRun)
	}
	finalizers := next.GetFinalizers()
	if p := opts.PropagationPolicy; p != nil {
		for policy, finalizer := range map[metav1.DeletionPropagation]string{
			metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents, metav1.DeletePropagationOrphan: metav1.FinalizerOrphanDependents,
		} {
			if *p == policy && !slices.Contains(finalizers, finalizer) {
				finalizers = append(finalizers, finalizer)
			}
		}
		next.SetFinalizers(finalizers)
	}
	grace := int64(0)
	if t.res.GracePeriod != nil {
		grace = t.res.GracePeriod(next.DeepCopy())
		if opts.GracePeriodSeconds != nil && grace > 0 { // with 0 nothing runs that would need time
			grace = max(0, *opts.GracePeriodSeconds)
		}
	}
	kept := keptBySpec(t, next)
	if len(finalizers) == 0 && grace == 0 && !kept {
		if t.res.GracePeriod != nil {
			now, zero := metav1.NewTime(time.Now().UTC().Truncate(time.Second)), int64(0)
			next.SetDeletionTimestamp(&now)
			next.SetDeletionGracePeriodSeconds(&zero)
		}
		return s.erase(t, base, s.builder(t, next), dryRun)
	}
	if at := next.GetDeletionTimestamp(); at != nil {
		if had := next.GetDeletionGracePeriodSeconds(); had == nil || *had <= grace {
			if slices.Equal(finalizers, finalizersOf(base)) {
				return base, false, nil // it is being deleted already, and no sooner
			}
			grace = valueOr(had, 0)
		}
	} else if !t.res.NoGeneration || next.GetGeneration() > 0 {
		next.SetGeneration(next.GetGeneration() + 1)
	}
	until := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).UTC().Truncate(time.Second))
	next.SetDeletionTimestamp(&until)
	if kept {
		_ = unstructured.SetNestedField(next.Object, string(corev1.NamespaceTerminating), "status", "phase") // it fails on what is no status
	} else {
		next.SetDeletionGracePeriodSeconds(&grace)
	}
	o, err := s.persist(t, base, next, dryRun)
	return o, false, err
}

// keptBySpec says whether the finalizers of its spec keep an object, as they keep a namespace that is not empty.
func keptBySpec(t *table, obj *unstructured.Unstructured) bool {
	if t.res.GVK() != corev1.SchemeGroupVersion.WithKind("Namespace") {
		return false
	}
	finalizers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "finalizers") // none in what cannot be read
	return len(finalizers) > 0
}

func finalizersOf(o *object) []string {
	u, err := o.copy()
	if err != nil {
		return nil
	}
	return u.GetFinalizers()
}

func valueOr(p *int64, def int64) int64 {
	if p == nil {
		return def
	}
	return *p
}

func (s *Server) erase(t *table, base *object, build func(uint64) *object, dryRun bool) (*object, bool, error) {
	if dryRun {
		return base, true, nil
	}
	if o := s.store.commit(t, base.key(), watch.Deleted, base, build); o != nil {
		return o, true, nil
	}
	return nil, false, errRaced
}

// deleteCollection deletes what the selectors match, and answers with the list of it.
func (x *exchange) deleteCollection() error {
	sel, err := x.selection()
	if err != nil {
		return err
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	objects, _, _ := x.s.store.snapshotAt(x.table, 0)
	var deleted []*object
	for _, o := range objects {
		if !sel.matches(o) {
			continue
		}
		last, _, err := x.s.remove(x.r.Context(), x.table, o.namespace, o.name, opts, x.dryRun() || len(opts.DryRun) > 0)
		switch {
		case errors.IsNotFound(err):
		case err != nil:
			return err
		default:
			deleted = append(deleted, last)
		}
	}
	return x.sendList(deleted, metav1.ListMeta{ResourceVersion: x.s.store.version.format(x.s.store.current())}, false)
}
