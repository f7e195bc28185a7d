package apiserver

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The kind and resource of errors that name none.
var (
	schemaless         schema.GroupKind
	schemalessResource schema.GroupResource
)

// checkIdentity compares kind, version, namespace and name with those of the path.
func (x *exchange) checkIdentity(obj *unstructured.Unstructured) error {
	res := x.table.res
	if v := obj.GetAPIVersion(); v != res.apiVersion() {
		return errors.NewBadRequest(fmt.Sprintf(
			"the API version in the data (%s) does not match the expected API version (%s)", v, res.apiVersion(),
		))
	}
	if kind := obj.GetKind(); kind != res.Kind && x.table.typed {
		return errors.NewBadRequest(fmt.Sprintf("the object is of kind %s, not %s", kind, res.Kind))
	}
	if kind := obj.GroupVersionKind().GroupKind(); kind.Kind != res.Kind {
		return errors.NewInvalid(kind, obj.GetName(),
			field.ErrorList{field.Invalid(field.NewPath("kind"), kind.Kind, "must be "+res.Kind)})
	}
	if err := x.checkNamespace(obj); err != nil {
		return err
	}
	if name := obj.GetName(); x.req.Name != "" && name != x.req.Name {
		return errors.NewBadRequest("the name of the object (" + name + ") does not match the name on the URL (" +
			x.req.Name + ")")
	}
	return nil
}

func (x *exchange) checkNamespace(obj *unstructured.Unstructured) error {
	if !x.table.res.Namespaced {
		obj.SetNamespace("")
		return nil
	}
	if ns := obj.GetNamespace(); ns != "" && ns != x.req.Namespace {
		return errors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(x.req.Namespace)
	return nil
}

// validateMeta applies the metadata rules of every kind. old is nil for a create.
func (t *table) validateMeta(obj, old *unstructured.Unstructured) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(obj, t.res.Namespaced, t.rules().name, path)
	if old != nil {
		errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(obj, old, path)...)
	}
	standard := []string{
		string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents,
		metav1.FinalizerDeleteDependents,
	}
	for i, f := range obj.GetFinalizers() {
		if t.typed && !strings.Contains(f, "/") && !slices.Contains(standard, f) {
			errs = append(errs, field.Invalid(path.Child("finalizers").Index(i), f,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// singleOwners removes duplicate owner references.
func (x *exchange) singleOwners(obj *unstructured.Unstructured) {
	refs := obj.GetOwnerReferences()
	var single []metav1.OwnerReference
	for _, r := range refs {
		if !slices.ContainsFunc(single, func(s metav1.OwnerReference) bool { return sameOwner(s, r) }) {
			single = append(single, r)
		}
	}
	if len(single) < len(refs) {
		x.warnings = append(x.warnings, "metadata.ownerReferences contains duplicate entries")
		obj.SetOwnerReferences(single)
	}
}

func sameOwner(a, b metav1.OwnerReference) bool {
	same := func(a, b *bool) bool { return a == b || a != nil && b != nil && *a == *b }
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		same(a.Controller, b.Controller) && same(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}
