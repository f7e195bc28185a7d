package client

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/call"
)

// Applicable is what can be applied: an [Object] that was built for it, or an apply configuration, as client-go has
// them for its own types (k8s.io/client-go/applyconfigurations) and applyconfiguration-gen and controller-gen generate
// them for others. A configuration says exactly what is wanted, also a zero, where a Go type encodes every field that
// is not omitted when empty. Anything else is an error.
type Applicable any

// Apply is a server-side apply of the fields of obj by the client's field owner: fields that it applied before and that
// obj does not have are removed. An apply equal to the last one is not sent while the cache still shows what it
// applied.
//
// An Object is what the server answered afterwards; a configuration stays as it is, and the next read shows the answer.
// Build it anew each time: one that was read, or that an Apply has filled, holds what users and other managers set, and
// the operator would own that with them from then on. It is refused with ErrWasRead. A resourceVersion makes the apply
// hold for that version, a uid for that incarnation.
func (c *Client) Apply(ctx context.Context, obj Applicable, opts ...WriteOption) error {
	return c.apply(ctx, "", obj, opts)
}

func (c *Client) apply(ctx context.Context, subresource string, what Applicable, opts []WriteOption) error {
	obj, err := applicable(what)
	if err != nil {
		return err
	}
	w, err := c.begin(ctx, call.VerbApply, subresource, obj, opts)
	if err != nil {
		return err
	}
	body := obj
	if w.o.body != nil {
		body, w.answer = w.o.body, w.o.body
	}
	if mark := readMark(body); mark != "" {
		return w.fail(fmt.Errorf("%w (it has %s)", ErrWasRead, mark))
	}
	want, err := content(body)
	if err != nil {
		return w.fail(err)
	}
	meta := sub(want, "metadata")
	if s, ok := want["status"].(map[string]any); ok && len(s) == 0 {
		delete(want, "status") // Go types encode an empty one where nobody set anything
	}
	if subresource == "" || w.o.body == nil {
		want["kind"], want["apiVersion"] = w.k.gvk.Kind, w.k.gvk.GroupVersion().String()
	}
	version, _ := meta["resourceVersion"].(string)
	delete(meta, "resourceVersion")
	memo, data, err := w.memo(want)
	if err != nil {
		return w.fail(err)
	}
	r := w.whole()
	if r != nil && !w.o.always && !w.o.dryRun && sameVersion(version, r) && c.applied.holds(memo, r, want) {
		return fill(w.k, r, obj)
	}
	if w.strict || w.unordered() {
		if version, err = w.lockApply(ctx, version); err != nil {
			return err
		}
	}
	if version != "" {
		meta["resourceVersion"] = version
		if data, err = json.Marshal(want); err != nil {
			return w.fail(err)
		}
	}
	w.version, w.req.Body, w.sent = version, data, data
	w.after = func(a *call.Answer) { c.applied.note(memo, a) }
	return w.send(ctx)
}

// applicable returns the object to apply: obj itself, or what a configuration says, which need not be of a kind that
// the Scheme knows.
func applicable(what Applicable) (Object, error) {
	if obj, ok := what.(Object); ok {
		return obj, nil
	}
	_, root := what.(runtime.ApplyConfiguration)
	_, older := what.(interface{ GetName() *string }) // generated before there was that interface
	if !root && !older {
		return nil, fmt.Errorf("cannot apply a %T: it is neither a pointer to an object nor an apply configuration", what)
	}
	raw, err := json.Marshal(what)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T: %w", what, err)
	}
	u := &unstructured.Unstructured{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &u.Object); err != nil {
		return nil, fmt.Errorf("cannot apply a %T: %w", what, err)
	}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return nil, fmt.Errorf("cannot tell the kind of a %T: set its apiVersion and kind, as its constructor does", what)
	}
	return u, nil
}

// readMark says by what an object can be told to have been read. Who applies may say a uid or a version, as a
// condition; the others only the server sets, and both together nobody needs.
func readMark(obj metav1.Object) string {
	created := obj.GetCreationTimestamp()
	switch {
	case len(obj.GetManagedFields()) > 0:
		return "managedFields"
	case !created.IsZero():
		return "a creationTimestamp"
	case obj.GetDeletionTimestamp() != nil:
		return "a deletionTimestamp"
	case obj.GetGeneration() != 0:
		return "a generation"
	case obj.GetSelfLink() != "":
		return "a selfLink"
	case obj.GetUID() != "" && obj.GetResourceVersion() != "":
		return "a uid and a resourceVersion"
	}
	return ""
}
