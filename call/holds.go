package call

import (
	"encoding/json"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// holds says whether the live object shows that the write has been done: it has every field that was sent, and nothing that the
// write would have removed. What cannot be compared counts as not held: the refusal of the server then stands, and its caller
// looks again, whereas a success that was none would lose the write.
func holds(r *Request, sent, liveRaw []byte) bool {
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
	if r.Subresource == "status" { // nothing else is written
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
		// One that removes something cannot be read off the result, nor one with a list, which may replace or merge, unless the live
		// list is just that.
		return !removes(want) && tree.Merged(want, live)
	case VerbApply:
		return fields != nil && tree.Includes(live, want) && ownsNoMore(fields, want, live)
	}
	if going {
		return false // the name is not free yet, and what has it is not what was created or will soon be gone
	}
	if r.Subresource != "status" {
		delete(want, "status") // where there is a status subresource, a create ignores it
	}
	return tree.Includes(live, want)
}

// mergeHeld says whether a merge patch, its precondition aside, would change nothing.
func mergeHeld(patch []byte, live map[string]any) bool {
	var p map[string]any
	if json.Unmarshal(patch, &p) != nil || p == nil {
		return false
	}
	withoutServerFields(p)
	return tree.Merged(p, live)
}

// removes says whether a patch removes a member, or all.
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

// withoutServerFields drops what the server sets on its own.
func withoutServerFields(obj map[string]any) {
	for _, field := range []string{
		"resourceVersion", "managedFields", "generation", "creationTimestamp", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		delete(meta(obj), field)
	}
}

// dropUnsent drops fields that the server fills in where they were not sent.
func dropUnsent(want, live map[string]any, fields ...string) {
	for _, field := range fields {
		if want[field] == nil {
			delete(live, field)
		}
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
