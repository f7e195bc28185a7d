package apiserver

import (
	"encoding/json"
	stderrors "errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver/internal/custom"
)

// scaleTable describes the kind of the scale subresource. It has no objects.
func scaleTable() *table {
	kind := autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	return newTable(Resource{Group: kind.Group, Version: kind.Version, Resource: "scales", Kind: kind.Kind}, newRows())
}

// noReplicas stands for the replicas of an object that has none, in a Scale that a request changes.
const noReplicas = math.MinInt32

// scalePaths returns the fields of the subresource in objects of a table.
func (t *table) scalePaths() custom.Scale {
	if t.custom != nil && t.custom.version.Scale != nil {
		return *t.custom.version.Scale
	}
	return custom.Scale{Spec: []string{"spec", "replicas"}, Status: []string{"status", "replicas"}}
}

// scale answers requests for the scale subresource.
func (x *exchange) scale() error {
	if x.req.Verb == "get" {
		base := x.s.store.get(x.table, objectKey(x.req.Namespace, x.req.Name))
		if base == nil {
			return errors.NewNotFound(x.groupResource(), x.req.Name)
		}
		return x.answerScale(base)
	}
	kind := types.PatchType("")
	o, err := x.updateOptions()
	if x.req.Verb == "patch" {
		media, _, _ := strings.Cut(x.r.Header.Get("Content-Type"), ";")
		kind = types.PatchType(media)
		o, err = x.patchOptions(kind)
	}
	if err != nil {
		return err
	}
	for {
		stored, err := x.tryScale(kind, o)
		if stderrors.Is(err, errRaced) {
			continue
		}
		if err != nil {
			return err
		}
		return x.answerScale(stored.as(x.table))
	}
}

// tryScale changes the replicas of the object of the request.
func (x *exchange) tryScale(kind types.PatchType, o writeOptions) (*object, error) {
	base := x.s.store.get(x.table, objectKey(x.req.Namespace, x.req.Name))
	if base == nil {
		return nil, errors.NewNotFound(x.groupResource(), x.req.Name)
	}
	live, err := base.copy()
	if err != nil {
		return nil, err
	}
	paths := x.table.scalePaths()
	replicas := make(fieldpath.Path, len(paths.Spec))
	for i := range paths.Spec {
		replicas[i] = fieldpath.PathElement{FieldName: &paths.Spec[i]}
	}
	handler := managedfields.NewScaleHandler(live.GetManagedFields(), x.table.res.GVK().GroupVersion(),
		managedfields.ResourcePathMappings{x.table.res.apiVersion(): replicas})
	before, err := x.table.toScale(live)
	if err != nil {
		return nil, err
	}
	if _, set, _ := unstructured.NestedFieldNoCopy(live.Object, paths.Spec...); !set && !x.table.typed {
		before.Spec.Replicas = noReplicas
	}
	if before.ManagedFields, err = handler.ToSubresource(); err != nil {
		return nil, err
	}
	after, err := x.changedScale(kind, o, before)
	if err != nil {
		return nil, err
	}
	n := after.Spec.Replicas
	switch {
	case n == noReplicas:
		return nil, errors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty",
			strings.Join(paths.Spec, ".")))
	case n < 0 && x.table.typed: // a custom resource has its own rules
		return nil, errors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), after.Name,
			field.ErrorList{field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0")})
	}
	next := live.DeepCopy()
	if err := unstructured.SetNestedField(next.Object, int64(after.Spec.Replicas), paths.Spec...); err != nil {
		return nil, errors.NewBadRequest(err.Error())
	}
	if after.ResourceVersion != "" {
		next.SetResourceVersion(after.ResourceVersion)
	}
	managed, err := handler.ToParent(after.ManagedFields)
	if err != nil {
		return nil, err
	}
	next.SetManagedFields(managed)
	return x.replace(base, live, next, o.dryRun)
}

// changedScale returns the Scale that the request wants. kind is empty for an update.
func (x *exchange) changedScale(
	kind types.PatchType, o writeOptions, before *autoscalingv1.Scale,
) (*autoscalingv1.Scale, error) {
	t := x.s.scales
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	live := &unstructured.Unstructured{Object: content}
	live.SetGroupVersionKind(t.res.GVK())
	var next *unstructured.Unstructured
	switch kind {
	case types.ApplyYAMLPatchType:
		if x.table.custom != nil { // as the real server, whose schema of a definition has no Scale
			return nil, fmt.Errorf("cannot apply a Scale to %s", x.req.Resource)
		}
		config, err := unmarshalYAML(x.req.Body)
		if err != nil {
			return nil, errors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
		}
		if next, err = x.s.apply.apply(t, "", live, &unstructured.Unstructured{Object: config}, o.manager,
			o.force); err != nil {
			return nil, err
		}
	case "":
		media, err := x.bodyType()
		if err != nil {
			return nil, err
		}
		decoded, doubts, err := t.decode(media, x.req.Body)
		if err == nil {
			err = x.heed(o.strict, doubts)
		}
		if err != nil {
			return nil, errors.NewBadRequest(err.Error())
		}
		next = &unstructured.Unstructured{Object: decoded}
	default:
		doc, err := json.Marshal(live.Object)
		if err != nil {
			return nil, err
		}
		patched, doubts, err := x.patchedAs(t, kind, doc, o.strict)
		if err != nil {
			return nil, err
		}
		var more []error
		if next, more, err = t.decodePatched(patched); err != nil {
			return nil, err
		}
		x.warnings = nil // of an earlier attempt
		if err := x.heed(o.strict, append(doubts, more...)); err != nil {
			return nil, unfit(string(patched), err)
		}
	}
	if gvk := next.GroupVersionKind(); gvk != t.res.GVK() {
		return nil, errors.NewBadRequest(fmt.Sprintf("the object is a %s, not a Scale", gvk))
	}
	if name := next.GetName(); name != x.req.Name {
		return nil, errors.NewBadRequest("the name of the object (" + name + ") does not match the name on the URL (" +
			x.req.Name + ")")
	}
	if uid := next.GetUID(); uid != "" && uid != before.UID {
		return nil, errors.NewConflict(x.groupResource(), x.req.Name,
			fmt.Errorf("precondition failed: the UID in the precondition is %s", uid))
	}
	if kind != types.ApplyYAMLPatchType {
		next = x.s.apply.update(t, "", live, next, o.manager)
	}
	after := &autoscalingv1.Scale{}
	return after, runtime.DefaultUnstructuredConverter.FromUnstructured(next.Object, after)
}

// toScale returns the Scale of an object.
func (t *table) toScale(obj *unstructured.Unstructured) (*autoscalingv1.Scale, error) {
	paths := t.scalePaths()
	number := func(path []string) (int32, error) {
		n, _, err := unstructured.NestedInt64(obj.Object, path...)
		if err != nil {
			return 0, errors.NewBadRequest(err.Error())
		}
		return int32(n), nil //nolint:gosec // it is validated by the schema or by its type
	}
	out := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		CreationTimestamp: obj.GetCreationTimestamp(),
	}}
	var err error
	if out.Spec.Replicas, err = number(paths.Spec); err != nil {
		return nil, err
	}
	if out.Status.Replicas, err = number(paths.Status); err != nil {
		return nil, err
	}
	switch {
	case paths.Selector != nil:
		out.Status.Selector, _, err = unstructured.NestedString(obj.Object, paths.Selector...)
	case t.typed:
		var s metav1.LabelSelector
		content, _, _ := unstructured.NestedMap(obj.Object, "spec", "selector") // none if it cannot be read
		if err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &s); err == nil {
			var selector fmt.Stringer
			if selector, err = metav1.LabelSelectorAsSelector(&s); err == nil {
				out.Status.Selector = selector.String()
			}
		}
	}
	return out, err
}

func (x *exchange) answerScale(o *object) error {
	obj, err := o.copy()
	if err != nil {
		return err
	}
	path := x.table.scalePaths().Spec
	if _, set, _ := unstructured.NestedFieldNoCopy(obj.Object, path...); !set && !x.table.typed {
		return errors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", strings.Join(path, ".")))
	}
	scale, err := x.table.toScale(obj)
	if err != nil {
		return err
	}
	return x.answerTypedAs(http.StatusOK, scale)
}
