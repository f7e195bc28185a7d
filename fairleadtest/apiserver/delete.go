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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func (x *exchange) delete() error {
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	o, gone, err := x.s.remove(x.r.Context(), x.table, x.req.Namespace, x.req.Name, opts)
	if err != nil {
		return err
	}
	if !gone || x.table.res.returnsDeleted {
		return x.answerObject(http.StatusOK, o)
	}
	x.out.whole(http.StatusOK, x.enc.contentType(false), x.enc.status(metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: o.name, Group: x.table.res.Group, Kind: x.table.res.Resource,
			UID: types.UID(o.uid),
		},
	}))
	return nil
}

// remove deletes an object, or marks it if finalizers or a grace period keep it. gone reports that it was deleted.
func (s *Server) remove(
	ctx context.Context, t *table, namespace, name string, opts metav1.DeleteOptions,
) (o *object, gone bool, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		o, gone, err = s.tryRemove(t, namespace, name, opts)
		if !stderrors.Is(err, errRaced) {
			return o, gone, err
		}
	}
}

func (s *Server) tryRemove(t *table, namespace, name string, opts metav1.DeleteOptions) (*object, bool, error) {
	base, dryRun := s.store.get(t, objectKey(namespace, name)), len(opts.DryRun) > 0
	if base == nil {
		return nil, false, errors.NewNotFound(t.res.GVR().GroupResource(), name)
	}
	if err := precondition(base, opts.Preconditions); err != nil {
		return nil, false, err
	}
	next, err := base.copy()
	if err != nil { // undecodable bytes are deleted as they are
		return s.erase(base, dryRun)
	}
	if keptBySpec(t, next) {
		o, err := s.terminate(base, next, dryRun)
		return o, false, err
	}
	if s.store.crds.has(t) && next.GetDeletionTimestamp() == nil {
		o, err := s.terminateDefinition(base, next, dryRun)
		return o, false, err
	}
	grace, pending := t.grace(next, opts.GracePeriodSeconds)
	if pending {
		return base, false, nil
	}
	finalizers, changed := collected(next.GetFinalizers(), opts)
	if grace == nil && len(finalizers) == 0 {
		return s.erase(base, dryRun)
	}
	if changed {
		next.SetFinalizers(finalizers)
	}
	if grace == nil {
		markDeleted(next)
	}
	if live, err := base.copy(); err != nil || !sameContent(live, next) {
		if base, err = s.persist(base, next, dryRun); err != nil {
			return nil, false, err
		}
	}
	if len(finalizers) > 0 || *grace > 0 {
		return base, false, nil
	}
	return s.erase(base, dryRun)
}

func precondition(base *object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	res := base.table.res
	of := schema.GroupResource{Group: res.Group, Resource: res.Kind}
	if res.GVK() == namespaceKind {
		of = res.GVR().GroupResource()
	}
	if p.UID != nil && string(*p.UID) != base.uid {
		return errors.NewConflict(of, base.name,
			fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, base.uid))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != base.version {
		return errors.NewConflict(of, base.name,
			fmt.Errorf("precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s",
				*p.ResourceVersion, base.version))
	}
	return nil
}

// grace marks an object of a kind with grace periods. It returns nil if the kind has none, or if the period is already
// 0. pending reports that the object is already under deletion and this request does not shorten its period.
func (t *table) grace(obj *unstructured.Unstructured, asked *int64) (period *int64, pending bool) {
	if t.res.gracePeriod == nil {
		return nil, false
	}
	if asked != nil && *asked < 0 {
		asked = new(int64(1))
	}
	if until := obj.GetDeletionTimestamp(); until != nil {
		had := obj.GetDeletionGracePeriodSeconds()
		switch {
		case had == nil || *had == 0:
			return nil, false
		case asked == nil || *asked >= *had:
			return nil, true
		}
		sooner := metav1.NewTime(until.Add(time.Duration(*asked-*had) * time.Second))
		obj.SetDeletionTimestamp(&sooner)
		obj.SetDeletionGracePeriodSeconds(asked)
		return asked, false
	}
	n := t.res.gracePeriod(obj.DeepCopy())
	if asked != nil && n > 0 { // with period 0 no process needs time to end
		n = *asked
	}
	until := metav1.NewTime(time.Now().Add(time.Duration(n) * time.Second).UTC().Truncate(time.Second))
	obj.SetDeletionTimestamp(&until)
	obj.SetDeletionGracePeriodSeconds(&n)
	if g := obj.GetGeneration(); g > 0 {
		obj.SetGeneration(g + 1)
	}
	return &n, false
}

// markDeleted marks an object that only finalizers keep.
func markDeleted(obj *unstructured.Unstructured) {
	if g := obj.GetGeneration(); obj.GetDeletionGracePeriodSeconds() == nil && g > 0 {
		obj.SetGeneration(g + 1)
	}
	now, zero := metav1.NewTime(time.Now().UTC().Truncate(time.Second)), int64(0)
	if at := obj.GetDeletionTimestamp(); at == nil || at.After(now.Time) {
		obj.SetDeletionTimestamp(&now)
	}
	obj.SetDeletionGracePeriodSeconds(&zero)
}

// collected returns the finalizers of an object for the requested treatment of its dependents. The options take
// precedence over the present finalizers.
func collected(have []string, opts metav1.DeleteOptions) (finalizers []string, changed bool) {
	ours := map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationOrphan:     metav1.FinalizerOrphanDependents,
		metav1.DeletePropagationForeground: metav1.FinalizerDeleteDependents,
	}
	want, orphan := "", opts.OrphanDependents //nolint:staticcheck // clients may still send it
	switch {
	case orphan != nil && *orphan:
		want = metav1.FinalizerOrphanDependents
	case orphan != nil:
	case opts.PropagationPolicy != nil:
		want = ours[*opts.PropagationPolicy]
	case slices.Contains(have, metav1.FinalizerOrphanDependents):
		want = metav1.FinalizerOrphanDependents
	case slices.Contains(have, metav1.FinalizerDeleteDependents):
		want = metav1.FinalizerDeleteDependents
	}
	for _, f := range have {
		if f != metav1.FinalizerOrphanDependents && f != metav1.FinalizerDeleteDependents {
			finalizers = append(finalizers, f)
		}
	}
	if want != "" {
		finalizers = append(finalizers, want)
	}
	return finalizers, !slices.Equal(finalizers, have)
}

var namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")

// keptBySpec reports whether finalizers in the spec keep an object, as for a namespace that is not empty.
func keptBySpec(t *table, obj *unstructured.Unstructured) bool {
	if t.res.GVK() != namespaceKind {
		return false
	}
	finalizers, _, _ := unstructured.NestedSlice(obj.Object, "spec", "finalizers") // none if it cannot be read
	return len(finalizers) > 0
}

// terminate marks a namespace as terminating.
func (s *Server) terminate(base *object, next *unstructured.Unstructured, dryRun bool) (*object, error) {
	if next.GetDeletionTimestamp() != nil {
		return base, nil
	}
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	next.SetDeletionTimestamp(&now)
	// It fails if status is not an object.
	_ = unstructured.SetNestedField(next.Object, string(corev1.NamespaceTerminating), "status", "phase")
	return s.persist(base, next, dryRun)
}

// admitCreate refuses a create where nothing new may be.
func (x *exchange) admitCreate(name string) error {
	if err := x.notTerminating(name); err != nil {
		return err
	}
	if c := x.table.custom; c != nil && x.s.definitionTerminates(c.definition) {
		return errors.NewForbidden(x.groupResource(), name,
			stderrors.New("create not allowed while custom resource definition is terminating"))
	}
	return nil
}

// notTerminating refuses a create in a namespace that is under deletion, or that must exist and does not.
func (x *exchange) notTerminating(name string) error {
	namespaces := x.s.store.table(corev1.SchemeGroupVersion.WithResource("namespaces"))
	if namespaces == nil || x.req.Namespace == "" {
		return nil
	}
	ns := x.s.store.get(namespaces, objectKey("", x.req.Namespace))
	if ns == nil {
		if x.s.opts.Strict {
			return errors.NewNotFound(namespaces.res.GVR().GroupResource(), x.req.Namespace)
		}
		return nil
	}
	if u, err := ns.copy(); err != nil || u.GetDeletionTimestamp() == nil {
		return nil
	}
	err := errors.NewForbidden(x.groupResource(), name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", x.req.Namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: corev1.NamespaceTerminatingCause, Message: "namespace is being terminated", Field: "metadata.namespace",
	}}
	return err
}

// erase deletes an object. Its last state is the present one.
func (s *Server) erase(base *object, dryRun bool) (*object, bool, error) {
	if dryRun {
		return base, true, nil
	}
	stored := base.stored()
	build := func(rev uint64) *object { return stored.withVersion(s.store.version, rev) }
	o := s.store.commit(base.table, base.key(), watch.Deleted, stored, build)
	if o == nil {
		return nil, false, errRaced
	}
	if c := base.table.custom; c != nil {
		s.finishDefinition(c.definition)
	}
	return o.as(base.table), true, nil
}

// deleteCollection deletes the selected objects and answers with a list of their previous states.
func (x *exchange) deleteCollection() error {
	list, err := x.listOptions()
	if err != nil {
		return err
	}
	opts, err := x.deleteOptions()
	if err != nil {
		return err
	}
	sel, err := x.selection(list)
	if err != nil {
		return err
	}
	objects, _, _ := x.s.store.snapshotAt(x.table, 0)
	var selected []*object
	for _, o := range objects {
		if sel.matches(o) && (list.Limit <= 0 || int64(len(selected)) < list.Limit) {
			selected = append(selected, o)
		}
	}
	for _, o := range selected {
		if _, _, err := x.s.remove(x.r.Context(), x.table, o.namespace, o.name, opts); err != nil && !errors.IsNotFound(err) {
			return err
		}
	}
	return x.sendList(selected, metav1.ListMeta{ResourceVersion: x.s.store.version.format(x.s.store.current())}, false)
}
