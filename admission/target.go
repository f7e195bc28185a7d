package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/tree"
)

// target is an object of the API server that contains addresses of hooks and the authorities that verify them. It has
// no lock.
type target struct {
	resource schema.GroupVersionResource
	kind     string
	name     string
	// want returns the wanted content as a tree, with the given bundle; nil means that the object must not exist.
	want func(bundle []byte) (map[string]any, error)
	// entries is the field with the list of hooks, in which no other hooks may be; empty for a conversion.
	entries string

	live    map[string]any // as last read; nil: the object does not exist
	version string
}

// read fetches the current object.
func (t *target) read(ctx context.Context, calls *call.Client) error {
	answer, err := call.Do(ctx, calls, call.Request{
		Verb: call.VerbGet, Resource: t.resource, Kind: t.kind, Name: t.name, NotFoundOK: true,
	}, call.Policy{})
	if t.live, t.version = nil, ""; err != nil || answer == nil {
		return err
	}
	var live any
	if err := decodeTree(answer.Raw, &live); err != nil {
		return fmt.Errorf("cannot read %s %s: %w", t.kind, t.name, err)
	}
	t.live, _ = live.(map[string]any)
	t.version, _ = tree.At(live, "metadata", "resourceVersion").(string)
	return nil
}

// trusted returns the authorities that the API server currently trusts, from all entries.
func (t *target) trusted() (s authority.Set) {
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				if text, ok := e.(string); ok && k == "caBundle" {
					var bundle []byte
					if json.Unmarshal([]byte(`"`+text+`"`), &bundle) == nil {
						for _, a := range authority.FromBundle(bundle) {
							s = s.With(a)
						}
					}
				}
				walk(e)
			}
		case []any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	if t.entries != "" {
		walk(t.live[t.entries])
	} else {
		walk(tree.At(t.live, "spec", "conversion"))
	}
	return s
}

// matches reports whether the current object has the wanted content.
func (t *target) matches(want map[string]any) bool {
	if t.live == nil {
		return want == nil
	}
	if want == nil {
		return tree.At(t.live, "metadata", "labels", label) == nil // another program owns it
	}
	if !tree.Contains(t.live, want) {
		return false
	}
	if t.entries == "" {
		return true
	}
	current, _ := t.live[t.entries].([]any)
	wanted, _ := want[t.entries].([]any)
	for i := range wanted {
		for _, narrows := range []string{"namespaceSelector", "objectSelector", "matchConditions"} {
			if !tree.Equal(tree.At(current[i], narrows), tree.At(wanted[i], narrows)) { // more terms would narrow it
				return false
			}
		}
	}
	return true
}

// write changes the object to the wanted content. It fails with a conflict if the object has changed since read. It
// reports whether the write has changed the object.
func (t *target) write(
	ctx context.Context, calls *call.Client, want map[string]any, manager string,
) (changed bool, _ error) {
	request := call.Request{
		Resource: t.resource, Kind: t.kind, Name: t.name, ConflictsExpected: true, Verb: call.VerbApply,
		Query: url.Values{"fieldManager": {manager}, "force": {"true"}},
	}
	if want == nil {
		uid, _ := tree.At(t.live, "metadata", "uid").(string)
		body, err := json.Marshal(map[string]any{"preconditions": map[string]any{"uid": uid, "resourceVersion": t.version}})
		if err != nil {
			return false, err
		}
		request.Verb, request.Query, request.Body, request.NotFoundOK = call.VerbDelete, nil, body, true
		_, err = call.Do(ctx, calls, request, call.Policy{})
		return true, err
	}
	if removed, err := t.removeOtherAddress(ctx, calls, want, manager); removed || err != nil {
		return removed, err
	}
	if t.version != "" {
		want["metadata"].(map[string]any)["resourceVersion"] = t.version
	}
	var err error
	if request.Body, err = json.Marshal(want); err != nil {
		return false, err
	}
	answer, err := call.Do(ctx, calls, request, call.Policy{})
	if err != nil {
		return false, err
	}
	var is metav1.PartialObjectMetadata
	err = json.Unmarshal(answer.Raw, &is)
	return is.ResourceVersion != t.version, err
}

// dropsFields reports whether the API server changes the version of stored objects without a conversion. An update
// through one version then drops the fields of the others.
func (t *target) dropsFields() bool { return t.isNone() && t.versions() > 1 }

// isNone reports whether t is a definition whose conversion strategy is None.
func (t *target) isNone() bool {
	strategy := tree.At(t.live, "spec", "conversion", "strategy")
	return t.resource == definitions && strategy == string(apiextensionsv1.NoneConverter)
}

func (t *target) versions() int {
	versions, _ := tree.At(t.live, "spec", "versions").([]any)
	return len(versions)
}

// removeOtherAddress removes the unwanted form of the address, Service or URL, from a definition. Only one form may be
// present, and an apply cannot remove a field of another owner. It reports whether the definition was patched.
func (t *target) removeOtherAddress(
	ctx context.Context, calls *call.Client, want map[string]any, manager string,
) (patched bool, _ error) {
	other := "url"
	if tree.At(want, "spec", "conversion", "webhook", "clientConfig", other) != nil {
		other = "service"
	}
	if t.resource != definitions || tree.At(t.live, "spec", "conversion", "webhook", "clientConfig", other) == nil {
		return false, nil
	}
	conversion := tree.At(want, "spec", "conversion").(map[string]any)
	tree.At(conversion, "webhook", "clientConfig").(map[string]any)[other] = nil
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": t.version}, "spec": map[string]any{"conversion": conversion},
	})
	if err != nil {
		return false, err
	}
	_, err = call.Do(ctx, calls, call.Request{
		Verb: call.VerbPatch, PatchType: types.MergePatchType, Resource: t.resource, Kind: t.kind, Name: t.name, Body: body,
		ConflictsExpected: true, Query: url.Values{"fieldManager": {manager}},
	}, call.Policy{})
	return true, err
}

func (t *target) String() string { return strings.TrimSpace(t.kind + " " + t.name) }
