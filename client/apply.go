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
	"github.com/fairlead-io/fairlead/client/internal/content"
)

// Applicable is an object that Apply accepts: an [Object] that was built for the apply, or an apply configuration.
// client-go has apply configurations for its own types (k8s.io/client-go/applyconfigurations); applyconfiguration-gen
// and controller-gen generate others. A configuration contains exactly the wanted fields, including zeros. A Go type
// encodes every field without omitempty. Apply returns an error for any other value.
type Applicable any

func (wr writer) apply(ctx context.Context, subresource string, what Applicable, opts []WriteOption) error {
	obj, err := applicable(what)
	if err != nil {
		return err
	}
	w, err := wr.begin(ctx, call.VerbApply, subresource, obj, opts)
	if err != nil {
		return err
	}
	body := obj
	if w.o.Body != nil {
		body, w.answer = w.o.Body, w.o.Body
	}
	if mark := readMark(body); mark != "" {
		return w.fail(fmt.Errorf("%w (it has %s)", ErrWasRead, mark))
	}
	want, err := content.Of(body)
	if err != nil {
		return w.fail(err)
	}
	meta := content.Member(want, "metadata")
	if s, ok := want["status"].(map[string]any); ok && len(s) == 0 {
		delete(want, "status") // Go types encode an empty status if no status is set
	}
	if subresource == "" || w.o.Body == nil {
		want["kind"], want["apiVersion"] = w.k.gvk.Kind, w.k.gvk.GroupVersion().String()
	}
	version, _ := meta["resourceVersion"].(string)
	delete(meta, "resourceVersion")
	this, data, err := memo(applyKey{w.k, w.key, subresource, w.o.Owner}, want)
	if err != nil {
		return w.fail(err)
	}
	r := w.whole()
	if r != nil && !w.o.Always && !w.o.DryRun && sameVersion(version, r) && wr.own.applied.holds(this, r, want) {
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
	w.after = func(a *call.Answer) { wr.own.applied.add(this, a) }
	return w.send(ctx)
}

// applicable returns the object to apply: what itself, or the content of a configuration, whose kind the Scheme need
// not know.
func applicable(what Applicable) (Object, error) {
	if obj, ok := what.(Object); ok {
		return obj, nil
	}
	_, root := what.(runtime.ApplyConfiguration)
	_, older := what.(interface{ GetName() *string }) // configurations generated before runtime.ApplyConfiguration existed
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

// readMark returns the field that shows that an object was read; "" if there is none. A caller may set a uid or a
// resourceVersion as a condition, but not both. Only the server sets the other fields.
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
