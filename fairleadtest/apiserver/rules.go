package apiserver

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// rules are special rules of a built-in kind. The zero value means none.
type rules struct {
	createOnUpdate bool // an update of a missing object creates it
	conditional    bool // an update must carry a version
	noCollection   bool // deletecollection is not supported

	name     validation.ValidateNameFunc
	prepare  func(next, old map[string]any) // sets defaults and fields that clients cannot set; old is nil for a create
	validate func(next, old map[string]any) field.ErrorList
	status   [][]string // fields besides the spec that the status subresource ignores
}

func (t *table) rules() rules {
	r := rules{name: validation.NameIsDNSSubdomain}
	if !t.typed {
		r.conditional, r.status = true, [][]string{{"metadata"}}
		return r
	}
	switch t.res.Group + "/" + t.res.Kind {
	case "/ConfigMap":
		r.validate = func(next, old map[string]any) field.ErrorList { return validateData(next, old, "binaryData") }
	case "/Secret":
		r.prepare, r.validate = prepareSecret, validateSecret
	case "/Pod":
		r.prepare, r.status = preparePod, [][]string{{"metadata", "deletionTimestamp"}, {"metadata", "ownerReferences"}}
	case "/Namespace":
		r.name, r.noCollection, r.prepare = validation.NameIsDNSLabel, true, prepareNamespace
	case "/Service":
		r.name, r.createOnUpdate = validation.NameIsDNS1035Label, true
	case "/Event", "/Endpoints", "events.k8s.io/Event":
		r.createOnUpdate = true
	case "coordination.k8s.io/Lease":
		r.createOnUpdate, r.conditional, r.validate = true, true, validateLease
	case "apiextensions.k8s.io/CustomResourceDefinition":
		r.conditional = true
	case "apps/Deployment":
		r.status = [][]string{{"metadata", "labels"}}
	}
	if t.strict {
		return t.strictRules(r)
	}
	return r
}

// ignored returns the fields that a write through a subresource ignores and does not own.
func (t *table) ignored(subresource string) *fieldpath.Set {
	if !t.res.has("status") {
		return fieldpath.NewSet()
	}
	if subresource != "status" {
		return fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	}
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
	for _, path := range t.rules().status {
		parts := make([]any, len(path))
		for i, p := range path {
			parts[i] = p
		}
		set.Insert(fieldpath.MakePathOrDie(parts...))
	}
	return set
}

func prepareSecret(next, _ map[string]any) {
	foldStringData(next)
	if next["type"] == nil {
		next["type"] = string(corev1.SecretTypeOpaque)
	}
}

func preparePod(next, old map[string]any) {
	if old != nil {
		return
	}
	next["status"] = map[string]any{"phase": string(corev1.PodPending), "qosClass": string(qosOf(next))}
}

// qosOf returns the quality of service for a pod's requests and limits.
func qosOf(content map[string]any) corev1.PodQOSClass {
	var p corev1.Pod
	if runtime.DefaultUnstructuredConverter.FromUnstructured(content, &p) != nil {
		return corev1.PodQOSBestEffort
	}
	some, guaranteed := false, true
	for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := positive(c.Resources.Limits, name)
			request, requested := positive(c.Resources.Requests, name)
			some = some || limited || requested
			guaranteed = guaranteed && limited && (!requested || request.Cmp(limit) == 0)
		}
	}
	switch {
	case !some:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

func positive(list corev1.ResourceList, name corev1.ResourceName) (resource.Quantity, bool) {
	q, ok := list[name]
	return q, ok && q.Sign() > 0
}

func prepareNamespace(next, old map[string]any) {
	if old != nil {
		if spec, ok := old["spec"]; ok {
			next["spec"] = runtime.DeepCopyJSONValue(spec)
		}
		return
	}
	labelNamespace(next)
	next["spec"] = map[string]any{"finalizers": []any{string(corev1.FinalizerKubernetes)}}
	next["status"] = map[string]any{"phase": string(corev1.NamespaceActive)}
}

// labelNamespace sets the label with the name of a namespace.
func labelNamespace(content map[string]any) {
	obj := unstructured.Unstructured{Object: content}
	if obj.GetName() == "" {
		return
	}
	labels := obj.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = obj.GetName()
	obj.SetLabels(labels)
}

func validateSecret(next, old map[string]any) field.ErrorList {
	errs := validateData(next, old, "")
	if old != nil && next["type"] != old["type"] {
		errs = append(errs, field.Invalid(field.NewPath("type"), next["type"], "field is immutable"))
	}
	return errs
}

const maxData = 1 << 20 // of a ConfigMap or Secret, in bytes

// validateData applies the rules for the data of a ConfigMap or Secret. more names a second data field.
func validateData(next, old map[string]any, more string) field.ErrorList {
	var errs field.ErrorList
	data, _ := next["data"].(map[string]any)
	binary, _ := next[more].(map[string]any)
	total := 0
	for name, values := range map[string]map[string]any{"data": data, more: binary} {
		for key, value := range values {
			for _, problem := range utilvalidation.IsConfigMapKey(key) {
				errs = append(errs, field.Invalid(field.NewPath(name).Key(key), key, problem))
			}
			if _, twice := binary[key]; twice && name == "data" {
				errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
			}
			text, _ := value.(string)
			if total += len(text); name == more || more == "" {
				total -= len(text) / 4 // base64
			}
		}
	}
	if total > maxData {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxData))
	}
	if old != nil && old["immutable"] == true {
		if next["immutable"] != true {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
		}
		for _, name := range []string{"data", more} {
			if name != "" && !reflect.DeepEqual(next[name], old[name]) {
				errs = append(errs, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
			}
		}
	}
	return errs
}

func validateLease(next, _ map[string]any) field.ErrorList {
	var errs field.ErrorList
	for _, name := range []string{"leaseDurationSeconds", "leaseTransitions"} {
		n, ok, _ := unstructured.NestedInt64(next, "spec", name) // it was decoded by its type before
		if least := map[string]int64{"leaseDurationSeconds": 1}[name]; ok && n < least {
			errs = append(errs, field.Invalid(field.NewPath("spec").Child(name), n, "is too small"))
		}
	}
	return errs
}
