package call

import (
	"encoding/json"
	"reflect"
	"slices"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// shows says whether the live object shows that the write was made: it has every field that was sent, and nothing
// that the write would have removed. What cannot be compared counts as not held: the refusal of the server then stands,
// and its caller looks again, whereas a success that was none would lose the write.
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
	if uid := at(want, "metadata", "uid"); uid != nil && uid != at(live, "metadata", "uid") {
		return false
	}
	going := at(live, "metadata", "deletionTimestamp") != nil
	if r.Subresource == "status" { // nothing else is written
		want, live = map[string]any{"status": want["status"]}, map[string]any{"status": live["status"]}
	}
	withoutServerFields(want)
	withoutServerFields(live)
	switch r.Verb {
	case VerbUpdate:
		if r.Subresource != "status" && empty(want["status"]) {
			delete(want, "status")
			delete(live, "status")
		}
		dropUnsent(want, live, "kind", "apiVersion")
		dropUnsent(meta(want), meta(live), "name", "namespace", "uid")
		return equal(want, live)
	case VerbPatch:
		return patched(want, live)
	case VerbApply:
		return fields != nil && subset(want, live) && ownsNoMore(fields, want, live)
	}
	if going {
		return false // the name is not free yet, and what has it is not what was created or will soon be gone
	}
	if r.Subresource != "status" {
		delete(want, "status") // where there is a status subresource, a create ignores it
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

func meta(obj map[string]any) map[string]any {
	m, _ := obj["metadata"].(map[string]any)
	return m
}

// at returns what is at a path, nil where there is nothing.
func at(v any, path ...string) any {
	for _, key := range path {
		m, _ := v.(map[string]any)
		v = m[key]
	}
	return v
}

// withoutServerFields drops what the server sets on its own.
func withoutServerFields(obj map[string]any) {
	for _, field := range []string{
		"resourceVersion", "managedFields", "generation", "creationTimestamp", "selfLink", "deletionTimestamp",
		"deletionGracePeriodSeconds",
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

// equal says whether two values are the same, apart from members that are null.
func equal(want, have any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range h {
			if _, both := w[k]; !both && v != nil {
				return false
			}
		}
		for k, v := range w {
			if !equal(v, h[k]) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		return ok && slices.EqualFunc(w, h, equal)
	}
	return reflect.DeepEqual(want, have)
}

// patched says whether a strategic merge patch would change nothing. One that removes something cannot be read off the
// result, nor one with a list, which may replace or merge, unless the live list is just that.
func patched(want, have any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return want != nil && equal(want, have)
	}
	h, ok := have.(map[string]any)
	if !ok {
		return false
	}
	for k, v := range w {
		if !patched(v, h[k]) {
			return false
		}
	}
	return true
}

// subset says whether have contains all of want. Empty values in want are not asked for where there is nothing:
// encoders write them where nobody set anything, and servers drop them.
func subset(want, have any) bool {
	switch w := want.(type) {
	case nil:
		return true
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return have == nil && empty(want)
		}
		for k, v := range w {
			if !subset(v, h[k]) {
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
	case string:
		return want == have || w == "" && have == nil
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
