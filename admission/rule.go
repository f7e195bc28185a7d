package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/place"
)

// FailurePolicy decides about a request if the hook cannot be called or cannot decide. It has no default.
type FailurePolicy string

const (
	// FailClosed refuses the request. No unchecked write passes, but these objects cannot be written while no replica
	// serves.
	FailClosed FailurePolicy = "Fail"
	// FailOpen allows the request unchecked.
	FailOpen FailurePolicy = "Ignore"
)

// Operation is an operation on an object.
type Operation = admissionv1.Operation

// The operations. Connect is not supported, since it has no object of the type.
const (
	Create = admissionv1.Create
	Update = admissionv1.Update
	Delete = admissionv1.Delete
)

// defaultTimeout is the timeout of a hook without one in its rule.
const defaultTimeout = 5 * time.Second

// Rule selects the requests for which a hook is called. OnFailure is required.
type Rule struct {
	OnFailure FailurePolicy
	// Name identifies the hook. It is a domain with at least three segments. Default: the action, kind, version and
	// group, such as validate.webpage.v1.example.com.
	Name string
	// Operations are the operations that call the hook. Default: Create and Update.
	Operations []Operation
	// Subresource is "status" to call the hook for the status instead of the object. Other subresources have objects of
	// other types and are not supported.
	Subresource string
	// Timeout is in whole seconds, 1 to 30. Default: 5 s.
	Timeout time.Duration
	// Namespaces and Objects select by labels. Default: all, except the exclusions that always apply.
	Namespaces, Objects *metav1.LabelSelector
	// Conditions are CEL expressions; the hook is called only if all are true.
	Conditions []admissionregistrationv1.MatchCondition
	// Reinvoke calls a mutating hook again if another hook has changed the object after it.
	Reinvoke bool
}

// hook is a declared hook.
type hook struct {
	Rule
	mutating bool
	place    string
	kind     schema.GroupVersionKind
	answer   func(ctx context.Context, in *admissionv1.AdmissionRequest) (outcome, error)
}

func (k *hook) path() string {
	if k.mutating {
		return "/mutate/" + k.Name
	}
	return "/validate/" + k.Name
}

func (k *hook) fail(err error) error {
	return &HookError{Hook: k.Name, Kind: k.kind, Place: k.place, Err: err}
}

// declare adds a hook for a type.
func declare[T any](h *Hooks, mutating bool, r Rule, fn func(context.Context, *Request[T]) error) {
	if h == nil || h.host == nil {
		return
	}
	k := &hook{Rule: r, mutating: mutating, place: place.Outside("github.com/fairlead-io/fairlead/admission")}
	kind, err := kindOf[T](h.host.Client().Scheme())
	if err != nil {
		h.declared.mistake(&HookError{Hook: cmp.Or(r.Name, reflect.TypeFor[T]().String()), Place: k.place, Err: err})
		return
	}
	k.kind = kind
	k.answer = func(ctx context.Context, in *admissionv1.AdmissionRequest) (outcome, error) {
		return ask(ctx, k, in, fn)
	}
	k.complete()
	if fn == nil {
		h.declared.mistake(k.fail(fmt.Errorf("%w: its function is nil", errInvalid)))
	}
	if err := k.check(); err != nil {
		h.declared.mistake(k.fail(err))
	}
	h.declared.addHook(k)
}

// kindOf returns the kind of a Go type.
func kindOf[T any](scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	obj, ok := any(new(T)).(client.Object)
	if !ok {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %s is not an object", errInvalid, reflect.TypeFor[T]())
	}
	kinds, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: the scheme does not know its type: %w", errInvalid, err)
	}
	return kinds[0], nil
}

func (k *hook) complete() {
	action := "validate"
	if k.mutating {
		action = "mutate"
	}
	kind := strings.ToLower(k.kind.Kind)
	if k.Subresource != "" {
		kind += "-" + k.Subresource
	}
	k.Name = cmp.Or(k.Name, strings.Join([]string{action, kind, k.kind.Version, cmp.Or(k.kind.Group, "core")}, "."))
	k.Timeout = cmp.Or(k.Timeout, defaultTimeout)
	if len(k.Operations) == 0 {
		k.Operations = []Operation{Create, Update}
	}
}

func (k *hook) check() error {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...))
	}
	if k.OnFailure != FailClosed && k.OnFailure != FailOpen {
		invalid("OnFailure is %q, must be FailClosed or FailOpen", k.OnFailure)
	}
	if err := validation.IsFullyQualifiedName(field.NewPath("Name"), k.Name).ToAggregate(); err != nil {
		invalid("%v", err)
	}
	if k.Timeout < time.Second || k.Timeout > 30*time.Second || k.Timeout%time.Second != 0 {
		invalid("Timeout is %v, must be whole seconds from 1 to 30", k.Timeout)
	}
	if k.Subresource != "" && k.Subresource != "status" {
		invalid("Subresource is %q, must be \"status\"", k.Subresource)
	}
	for _, op := range k.Operations {
		if op != Create && op != Update && op != Delete {
			invalid("%q is not an operation of admission", op)
		}
	}
	if k.mutating && slices.Contains(k.Operations, Delete) {
		invalid("a mutating hook cannot handle deletions")
	}
	if k.Reinvoke && !k.mutating {
		invalid("Reinvoke is for mutating hooks")
	}
	for name, s := range map[string]*metav1.LabelSelector{"Namespaces": k.Namespaces, "Objects": k.Objects} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			invalid("%s: %v", name, err)
		}
	}
	return errors.Join(errs...)
}

// namespaces returns a selector for the intersection of both selectors without the excluded namespaces.
func namespaces(only, s *metav1.LabelSelector, excluded []string) *metav1.LabelSelector {
	all := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn,
		Values: slices.Compact(slices.Sorted(slices.Values(excluded))),
	}}}
	for _, more := range []*metav1.LabelSelector{only, s} {
		if more == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(more.MatchLabels)) {
			all.MatchExpressions = append(all.MatchExpressions, metav1.LabelSelectorRequirement{
				Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{more.MatchLabels[key]},
			})
		}
		all.MatchExpressions = append(all.MatchExpressions, more.MatchExpressions...)
	}
	return all
}
