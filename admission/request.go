package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// maxWarnings bounds the warnings of one answer, and maxWarning the length of one in characters. The API server drops
// longer ones.
const (
	maxWarnings = 32
	maxWarning  = 256
)

// Request is a request to a hook. It is valid until the function returns, and is not safe for concurrent use.
type Request[T any] struct {
	// Object is the new state of the object; nil for a deletion. A function of Mutate modifies it. Modifications by a
	// function of Validate have no effect.
	Object *T
	// Old is the current state of the object; nil for a creation.
	Old       *T
	Operation Operation
	// Namespace and Name are those of the object. Name is empty if the API server generates it later.
	Namespace, Name string
	// Subresource is "status" or empty.
	Subresource string
	// User is the user who makes the request.
	User authenticationv1.UserInfo
	// DryRun means that the object will not be stored; the function must then have no side effects.
	DryRun bool
	// UID identifies the request.
	UID types.UID

	warnings []string
}

// Warn makes the API server show a warning to the user, whatever the decision. The number and the length of warnings
// are bounded.
func (r *Request[T]) Warn(format string, args ...any) {
	text := []rune(fmt.Sprintf(format, args...))
	if len(r.warnings) < maxWarnings {
		r.warnings = append(r.warnings, string(text[:min(len(text), maxWarning)]))
	}
}

// Validate declares a function that decides whether an operation on an object of type T is allowed. Any error refuses
// the operation, except an [Undecided] one:
//
//   - An API error (apierrors.NewForbidden, NewInvalid …) is returned to the client.
//   - *field.Error, joined or as an aggregate (field.ErrorList.ToAggregate), becomes an Invalid (422) with these
//     causes.
//   - Any other error becomes a Forbidden (403) with its text.
//
// The context ends when the API server stops waiting. fn must be safe for concurrent use. A panic of fn is logged and
// counts as undecided.
func Validate[T any](h *Hooks, r Rule, fn func(context.Context, *Request[T]) error) {
	declare(h, false, r, fn)
}

// Mutate declares a function that changes objects of type T before they are stored, by modifying r.Object. The API
// server receives the difference as a JSON patch, so fields that T does not know stay unchanged. fn must be idempotent,
// since the API server may call it again for the same object. All other rules are those of [Validate].
func Mutate[T any](h *Hooks, r Rule, fn func(context.Context, *Request[T]) error) {
	declare(h, true, r, fn)
}

// outcome is the decision of a hook.
type outcome struct {
	denial   *metav1.Status
	patch    []byte // JSON patch; nil: no changes
	warnings []string
}

// ask decodes a request, calls the function and returns its decision. An error means that it is undecided.
func ask[T any](
	ctx context.Context, k *hook, in *admissionv1.AdmissionRequest, fn func(context.Context, *Request[T]) error,
) (out outcome, err error) {
	r := &Request[T]{
		Operation: in.Operation, Namespace: in.Namespace, Name: in.Name, Subresource: in.SubResource, User: in.UserInfo,
		DryRun: in.DryRun != nil && *in.DryRun, UID: in.UID,
	}
	if r.Object, err = decode[T](in.Object.Raw, k.kind); err != nil {
		return out, badRequest{fmt.Errorf("cannot decode the object: %w", err)}
	}
	if r.Old, err = decode[T](in.OldObject.Raw, k.kind); err != nil {
		return out, badRequest{fmt.Errorf("cannot decode the old object: %w", err)}
	}
	if r.Object == nil && r.Operation != Delete || r.Old == nil && r.Operation != Create {
		return out, badRequest{fmt.Errorf("a request to %s has no object", r.Operation)}
	}
	if o, ok := any(r.Object).(metav1.Object); ok && r.Operation == Update && o.GetDeletionTimestamp() != nil {
		return out, nil // finalizers must remain removable
	}
	var before any
	if k.mutating {
		if before, err = encoded(r.Object); err != nil {
			return out, fmt.Errorf("cannot encode the object: %w", err)
		}
	}
	object := r.Object
	err = fn(ctx, r)
	out.warnings = r.warnings
	if err != nil {
		if undecided(ctx, err) {
			return out, err
		}
		out.denial = denial(err, k.kind.GroupKind(), r.Name)
		return out, nil
	}
	if !k.mutating {
		return out, nil
	}
	if r.Object == nil {
		r.Object = object // a deletion cannot be mutated
	}
	after, err := encoded(r.Object)
	if err != nil {
		return out, fmt.Errorf("cannot encode the changed object: %w", err)
	}
	var raw any
	if err := decodeTree(in.Object.Raw, &raw); err != nil {
		return out, badRequest{err}
	}
	out.patch, err = patchOf(raw, before, after)
	return out, err
}

// decode decodes an object. It returns nil if there is none.
func decode[T any](raw []byte, kind schema.GroupVersionKind) (*T, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	var head metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return nil, err
	}
	if head.GroupVersionKind() != kind {
		return nil, fmt.Errorf("it is a %s, must be a %s", head.GroupVersionKind(), kind)
	}
	obj := new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

// encoded returns an object as a JSON tree.
func encoded(obj any) (tree any, err error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return tree, decodeTree(raw, &tree)
}

func decodeTree(raw []byte, to *any) error { return kjson.UnmarshalCaseSensitivePreserveInts(raw, to) }

// denied returns the status of a refusal.
func denied(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}
}
