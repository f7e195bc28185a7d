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

// maxWarnings bounds the warnings of one answer, and maxWarning the length of one: the API server drops more.
const (
	maxWarnings = 32
	maxWarning  = 256
)

// Request is what a hook is asked. It belongs to the function that it is given to, until that returns, and is not safe
// for concurrent use.
type Request[T any] struct {
	// Object is the object as it would be; nil when it is deleted. A function of Mutate changes it; what one of Validate
	// changes is lost.
	Object *T
	// Old is the object as it is; nil when it is created.
	Old       *T
	Operation Operation
	// Namespace and Name of the object. A name that the API server is yet to make is empty.
	Namespace, Name string
	// Subresource is "status", or empty.
	Subresource string
	// User is who asks.
	User authenticationv1.UserInfo
	// DryRun says that nothing will be stored: a function must have no effects elsewhere, or none then.
	DryRun bool
	// UID names the request.
	UID types.UID

	warnings []string
}

// Warn has the API server show a line to the user, whatever the decision. The length of one, and of all, is bounded.
func (r *Request[T]) Warn(format string, args ...any) {
	text := []rune(fmt.Sprintf(format, args...))
	if len(r.warnings) < maxWarnings {
		r.warnings = append(r.warnings, string(text[:min(len(text), maxWarning)]))
	}
}

// Validate declares a function that is asked whether an operation on objects of type T may be done. An error of it
// refuses the operation; [Undecided] says which do not.
//
//   - an API error (apierrors.NewForbidden, NewInvalid …) is what the client gets,
//   - *field.Error, joined or as an aggregate (field.ErrorList.ToAggregate), is an Invalid (422) with their causes,
//   - any other is a Forbidden (403) with its text.
//
// The context ends when the API server does not wait any more. fn may be called by many requests at a time. A panic of
// it is logged, and counts as one who could not say.
func Validate[T any](h *Hooks, r Rule, fn func(context.Context, *Request[T]) error) {
	declare(h, false, r, fn)
}

// Mutate declares a function that changes objects of type T before they are stored: it changes r.Object. The API
// server is told the smallest difference as a JSON patch, so that fields that T does not know stay; what it is asked
// about it has to be able to be asked twice. All else is as with [Validate].
func Mutate[T any](h *Hooks, r Rule, fn func(context.Context, *Request[T]) error) {
	declare(h, true, r, fn)
}

// outcome is what a hook has said.
type outcome struct {
	denial   *metav1.Status
	patch    []byte // JSON patch; nil: nothing was changed
	warnings []string
}

// ask decodes a request, has the function decide, and says what that means. An error is that of who could not say.
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
		return out, nil // its finalizers have to be removed
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
		r.Object = object // there is no way to say so, and no sense in it
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

// decode reads an object; nil if there is none.
func decode[T any](raw []byte, kind schema.GroupVersionKind) (*T, error) {
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil, nil
	}
	var head metav1.TypeMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		return nil, err
	}
	if head.GroupVersionKind() != kind {
		return nil, fmt.Errorf("it is a %s, and has to be a %s", head.GroupVersionKind(), kind)
	}
	obj := new(T)
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

// encoded returns an object as a tree.
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
