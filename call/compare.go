package call

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// shows reports whether the live object proves that the write was made: it has every field that was sent, and no field
// that the write would have removed. If they cannot be compared, shows returns false. The server's refusal is then the
// result and the caller retries, whereas a false success would lose the write.
func shows(r *Request, sent, liveRaw []byte) bool {
	live, ok := asMap(r, liveRaw)
	if !ok {
		return false
	}
	if r.Verb == VerbPatch && r.PatchType != types.StrategicMergePatchType {
		return r.PatchType == types.MergePatchType && mergeHeld(sent, live) && setByUs(r, sent, live)
	}
	want, ok := asMap(r, sent)
	if !ok {
		return false
	}
	fields := fieldsOf(live, r.Query.Get("fieldManager"), r.Subresource, "Apply")
	if uid := tree.At(want, "metadata", "uid"); uid != nil && uid != tree.At(live, "metadata", "uid") {
		return false
	}
	going := tree.At(live, "metadata", "deletionTimestamp") != nil
	if r.Subresource == "status" { // the server changes no other field
		want, live = map[string]any{"status": want["status"]}, map[string]any{"status": live["status"]}
	}
	withoutServerFields(want)
	withoutServerFields(live)
	switch r.Verb {
	case VerbUpdate:
		if r.Subresource != "status" && tree.Empty(want["status"]) {
			delete(want, "status")
			delete(live, "status")
		}
		dropUnsent(want, live, "kind", "apiVersion")
		dropUnsent(meta(want), meta(live), "name", "namespace", "uid")
		return tree.Equal(want, live)
	case VerbPatch:
		// The result of a patch that removes fields does not show whether it was made. Neither does that of a patch with a
		// list, which may replace or merge, unless the live list is equal.
		return !removes(want) && tree.Merged(want, live)
	case VerbApply:
		return fields != nil && tree.Includes(live, want) && ownsNoMore(fields, want, live)
	}
	if going {
		return false // The name belongs to another object, or to ours, which is about to disappear.
	}
	if r.Subresource != "status" {
		delete(want, "status") // a create ignores the status if that is a subresource
	}
	return tree.Includes(live, want)
}

// mergeHeld reports whether a merge patch, without its precondition, would change nothing.
func mergeHeld(patch []byte, live map[string]any) bool {
	var p map[string]any
	if json.Unmarshal(patch, &p) != nil || p == nil {
		return false
	}
	withoutServerFields(p)
	return tree.Merged(p, live)
}

// removes reports whether a patch removes a member or the whole value.
func removes(patch any) bool {
	m, ok := patch.(map[string]any)
	if !ok {
		return patch == nil
	}
	for _, v := range m {
		if removes(v) {
			return true
		}
	}
	return false
}

func meta(obj map[string]any) map[string]any {
	m, _ := obj["metadata"].(map[string]any)
	return m
}

// withoutServerFields removes the fields that only the server sets.
func withoutServerFields(obj map[string]any) {
	for _, field := range []string{
		"resourceVersion", "managedFields", "generation", "creationTimestamp", "selfLink", "deletionTimestamp",
		"deletionGracePeriodSeconds",
	} {
		delete(meta(obj), field)
	}
}

// dropUnsent removes fields from live that were not sent, because the server fills them in.
func dropUnsent(want, live map[string]any, fields ...string) {
	for _, field := range fields {
		if want[field] == nil {
			delete(live, field)
		}
	}
}

// asMap decodes an object from JSON, or from protobuf through the type of the request's object.
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
