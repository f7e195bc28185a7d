package call

import (
	"encoding/json"
	"reflect"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// repeatable says whether a write whose outcome is unknown may be sent again without harm.
func repeatable(r *Request, sent []byte) bool {
	if r.Idempotent {
		return true
	}
	switch r.Verb {
	case VerbDelete, VerbDeleteCollection, VerbApply:
		return true
	case VerbCreate:
		// With a fixed name the second create is refused by the first. The create of a subresource is an action.
		return r.Subresource == "" && identity(r, sent).Name != ""
	case VerbUpdate:
		return identity(r, sent).ResourceVersion != ""
	case VerbPatch:
		switch r.PatchType {
		case types.MergePatchType:
			return true // RFC 7396: the second time it changes nothing
		case types.JSONPatchType:
			return testsVersion(sent)
		default:
			return identity(r, sent).ResourceVersion != ""
		}
	}
	return true
}

// objectMeta is what must be known of a body.
type objectMeta struct {
	Name            string `json:"name"`
	GenerateName    string `json:"generateName"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

func identity(r *Request, sent []byte) objectMeta {
	if m, ok := r.Object.(interface {
		GetName() string
		GetGenerateName() string
		GetUID() types.UID
		GetResourceVersion() string
	}); ok && r.Body == nil {
		return objectMeta{m.GetName(), m.GetGenerateName(), string(m.GetUID()), m.GetResourceVersion()}
	}
	var o struct {
		Metadata objectMeta `json:"metadata"`
	}
	if json.Unmarshal(sent, &o) != nil {
		return objectMeta{}
	}
	return o.Metadata
}

func generated(r *Request, sent []byte) bool {
	m := identity(r, sent)
	return r.Subresource == "" && m.Name == "" && m.GenerateName != ""
}

// testsVersion says whether a JSON patch applies only to one version of the object.
func testsVersion(patch []byte) bool {
	var ops []struct {
		Op, Path string
	}
	if json.Unmarshal(patch, &ops) != nil {
		return false
	}
	for _, op := range ops {
		if op.Op == "test" && op.Path == "/metadata/resourceVersion" {
			return true
		}
	}
	return false
}

// holds says whether the live object has every field that was sent, so that the write has been done. What cannot be compared
// counts as not held: the refusal of the server then stands.
func holds(r *Request, sent, liveRaw []byte) bool {
	live, ok := asMap(r, liveRaw)
	if !ok {
		return false
	}
	if r.Verb == VerbPatch && r.PatchType != types.StrategicMergePatchType {
		return r.PatchType == types.MergePatchType && mergeHeld(sent, live)
	}
	want, ok := asMap(r, sent)
	if !ok {
		return false
	}
	if r.Verb == VerbPatch && hasNull(want) {
		return false // a strategic merge patch that removes something cannot be read off the result
	}
	withoutServerFields(want)
	if r.Subresource != "status" {
		delete(want, "status") // where there is a status subresource, any other write ignores it
	} else {
		want = map[string]any{"metadata": map[string]any{"uid": identity(r, sent).UID}, "status": want["status"]}
	}
	return subset(want, live)
}

// mergeHeld says whether a merge patch, its precondition aside, would change nothing.
func mergeHeld(patch []byte, live map[string]any) bool {
	var p map[string]any
	if json.Unmarshal(patch, &p) != nil {
		return false
	}
	withoutServerFields(p)
	rest, err := json.Marshal(p)
	if err != nil {
		return false
	}
	doc, err := json.Marshal(live)
	if err != nil {
		return false
	}
	after, err := jsonpatch.MergePatch(doc, rest)
	return err == nil && jsonpatch.Equal(doc, after)
}

// withoutServerFields drops what the server sets on its own.
func withoutServerFields(obj map[string]any) {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return
	}
	for _, field := range []string{"resourceVersion", "managedFields", "generation", "creationTimestamp", "selfLink"} {
		delete(meta, field)
	}
}

// asMap decodes an object from JSON, or from protobuf by way of the type of the request's object.
func asMap(r *Request, raw []byte) (map[string]any, bool) {
	if len(raw) > len(protobufMagic) && string(raw[:len(protobufMagic)]) == string(protobufMagic) {
		if r.Object == nil {
			return nil, false
		}
		obj, ok := reflect.New(reflect.TypeOf(r.Object).Elem()).Interface().(runtime.Object)
		if !ok || decode(raw, obj) != nil {
			return nil, false
		}
		var err error
		if raw, err = json.Marshal(obj); err != nil {
			return nil, false
		}
	}
	var m map[string]any
	return m, json.Unmarshal(raw, &m) == nil && m != nil
}

// subset says whether have contains all of want. Empty values in want are not asked for: encoders write them where nobody
// set anything, and servers drop them.
func subset(want, have any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return empty(want)
		}
		for k, v := range w {
			if !empty(v) && !subset(v, h[k]) {
				return false
			}
		}
		return true
	case []any:
		// In the same order, but admission may have put more between, as it does with volumes and finalizers.
		h, _ := have.([]any)
		for _, v := range w {
			i := slices.IndexFunc(h, func(x any) bool { return subset(v, x) })
			if i < 0 {
				return false
			}
			h = h[i+1:]
		}
		return true
	}
	return reflect.DeepEqual(want, have)
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, x := range v {
			if !empty(x) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}

func hasNull(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, x := range v {
			if hasNull(x) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasNull)
	}
	return false
}
