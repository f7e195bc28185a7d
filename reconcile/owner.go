package reconcile

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/fairlead-io/fairlead/client"
)

// ErrOwned is matched when an object already has another controller.
var ErrOwned = errors.New("it has another controller")

// Own makes owner the controller of obj, for [Owns] and for the garbage collector. It changes only obj in memory; the
// caller writes it. Own refuses an owner in another namespace, since the garbage collector would delete obj.
func Own(c *client.Client, owner, obj client.Object) error {
	if isNil(obj) {
		return fmt.Errorf("cannot own an object: %w", client.ErrNil)
	}
	gvk, err := kindOf(c, owner)
	if err != nil {
		return err
	}
	if owner.GetUID() == "" {
		return fmt.Errorf("cannot own %s: %w", client.KeyOf(obj), client.ErrNoUID)
	}
	if ns := owner.GetNamespace(); ns != "" && ns != obj.GetNamespace() {
		return fmt.Errorf("cannot own %s: the owner %s is in another namespace", client.KeyOf(obj), client.KeyOf(owner))
	}
	refs := slices.Clone(obj.GetOwnerReferences())
	if had := metav1.GetControllerOfNoCopy(obj); had != nil && had.UID != owner.GetUID() {
		return fmt.Errorf("cannot own %s: %w: %s %s", client.KeyOf(obj), ErrOwned, had.Kind, had.Name)
	}
	refs = slices.DeleteFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() })
	obj.SetOwnerReferences(append(refs, *metav1.NewControllerRef(owner, gvk)))
	return nil
}

// OwnerReference returns the owner reference for an apply configuration; see [Own]. It makes owner the controller of
// the applied object, which must be in the namespace of the owner.
//
//	ref, err := reconcile.OwnerReference(c, gw)
//	…
//	err = c.Apply(ctx, corev1ac.ConfigMap(gw.Name, gw.Namespace).WithOwnerReferences(ref).WithData(data))
func OwnerReference(c *client.Client, owner client.Object) (*metav1ac.OwnerReferenceApplyConfiguration, error) {
	gvk, err := kindOf(c, owner)
	if err != nil {
		return nil, err
	}
	if owner.GetUID() == "" {
		return nil, fmt.Errorf("cannot refer to the owner %s: %w", client.KeyOf(owner), client.ErrNoUID)
	}
	return metav1ac.OwnerReference().WithAPIVersion(gvk.GroupVersion().String()).WithKind(gvk.Kind).
		WithName(owner.GetName()).WithUID(owner.GetUID()).WithController(true).WithBlockOwnerDeletion(true), nil
}

// isNil reports whether obj is nil, or a nil pointer or function.
func isNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

func kindOf(c *client.Client, obj client.Object) (schema.GroupVersionKind, error) {
	if isNil(obj) {
		return schema.GroupVersionKind{}, fmt.Errorf("cannot tell the kind of an object: %w", client.ErrNil)
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk, nil
	}
	kinds, _, err := c.Scheme().ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("cannot tell the kind of a %T: %w", obj, err)
	}
	return kinds[0], nil
}
