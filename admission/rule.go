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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/place"
)

// FailurePolicy is what becomes of a request when the hook cannot be asked, or cannot say. It has no default.
type FailurePolicy string

const (
	// FailClosed refuses the request: nothing passes that was not looked at, and while no replica serves, nobody can
	// write these objects.
	FailClosed FailurePolicy = "Fail"
	// FailOpen lets the request pass unseen.
	FailOpen FailurePolicy = "Ignore"
)

// Operation is what is done to an object.
type Operation = admissionv1.Operation

// The operations. A Connect has no object of the type, and is none.
const (
	Create = admissionv1.Create
	Update = admissionv1.Update
	Delete = admissionv1.Delete
)

// defaultTimeout is how long the API server waits for a hook whose rule says nothing else.
const defaultTimeout = 5 * time.Second

// Rule says what a hook is asked about. OnFailure is required.
type Rule struct {
	OnFailure FailurePolicy
	// Name tells hooks apart: a domain of three parts at least. Default: what it does, the kind, version and group:
	// validate.webpage.v1.example.com.
	Name string
	// Operations that it is asked about. Default: Create and Update.
	Operations []Operation
	// Subresource is "status" where it is asked about that instead of the object. Objects of other subresources are of
	// other types, and cannot be had.
	Subresource string
	// Timeout is whole seconds, 1 to 30. Default: 5 s.
	Timeout time.Duration
	// Namespaces and Objects select by labels. Default: all, but what is always excluded.
	Namespaces, Objects *metav1.LabelSelector
	// Conditions are CEL expressions that all have to hold, or it is not asked.
	Conditions []admissionregistrationv1.MatchCondition
	// Reinvoke asks a mutating hook again when another one has changed the object after it.
	Reinvoke bool
}

// hook is one that was declared.
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
	h.mu.Lock()
	defer h.mu.Unlock()
	kind, err := kindOf[T](h)
	if err != nil {
		h.mistake(&HookError{Hook: cmp.Or(r.Name, reflect.TypeFor[T]().String()), Place: k.place, Err: err})
		return
	}
	k.kind = kind
	k.answer = func(ctx context.Context, in *admissionv1.AdmissionRequest) (outcome, error) {
		return ask(ctx, k, in, fn)
	}
	k.complete()
	if fn == nil {
		h.mistake(k.fail(fmt.Errorf("%w: its function is nil", errInvalid)))
	}
	if err := k.check(); err != nil {
		h.mistake(k.fail(err))
	}
	if i := slices.IndexFunc(h.hooks, func(o *hook) bool { return o.Name == k.Name }); i >= 0 {
		h.mistake(k.fail(fmt.Errorf("%w, at %s", errName, h.hooks[i].place)))
	}
	if h.sealed {
		h.mistake(k.fail(errors.New("the runtime has begun")))
		return
	}
	h.hooks = append(h.hooks, k)
}

// kindOf returns the kind of a Go type.
func kindOf[T any](h *Hooks) (schema.GroupVersionKind, error) {
	obj, ok := any(new(T)).(client.Object)
	if !ok {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: %s is no object", errInvalid, reflect.TypeFor[T]())
	}
	kinds, _, err := h.host.Client().Scheme().ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("%w: the scheme does not know its type: %w", errInvalid, err)
	}
	return kinds[0], nil
}

func (k *hook) complete() {
	does := "validate"
	if k.mutating {
		does = "mutate"
	}
	kind := strings.ToLower(k.kind.Kind)
	if k.Subresource != "" {
		kind += "-" + k.Subresource
	}
	k.Name = cmp.Or(k.Name, strings.Join([]string{does, kind, k.kind.Version, cmp.Or(k.kind.Group, "core")}, "."))
	k.Timeout = cmp.Or(k.Timeout, defaultTimeout)
	if len(k.Operations) == 0 {
		k.Operations = []Operation{Create, Update}
	}
}

func (k *hook) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...))
	}
	if k.OnFailure != FailClosed && k.OnFailure != FailOpen {
		wrong("OnFailure is %q, and has to be FailClosed or FailOpen", k.OnFailure)
	}
	if err := validation.IsFullyQualifiedName(field.NewPath("Name"), k.Name).ToAggregate(); err != nil {
		wrong("%v", err)
	}
	if k.Timeout < time.Second || k.Timeout > 30*time.Second || k.Timeout%time.Second != 0 {
		wrong("Timeout is %v, and has to be whole seconds from 1 to 30", k.Timeout)
	}
	if k.Subresource != "" && k.Subresource != "status" {
		wrong("Subresource is %q, and can be \"status\" only", k.Subresource)
	}
	for _, op := range k.Operations {
		if op != Create && op != Update && op != Delete {
			wrong("%q is no operation that it can be asked about", op)
		}
	}
	if k.mutating && slices.Contains(k.Operations, Delete) {
		wrong("what is deleted cannot be changed")
	}
	if k.Reinvoke && !k.mutating {
		wrong("Reinvoke is for mutating hooks")
	}
	for name, s := range map[string]*metav1.LabelSelector{"Namespaces": k.Namespaces, "Objects": k.Objects} {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			wrong("%s: %v", name, err)
		}
	}
	return errors.Join(errs...)
}

// namespaces returns a selector of what both selectors select, without some namespaces.
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
