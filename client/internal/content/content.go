package content

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Of returns an object as JSON values, without managedFields, which only the server sets, and without a null
// creationTimestamp.
func Of(obj runtime.Object) (map[string]any, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T: %w", obj, err)
	}
	return Decode(raw)
}

// Decode is Of for an encoded object.
func Decode(raw []byte) (map[string]any, error) {
	var m map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &m); err != nil {
		return nil, fmt.Errorf("cannot decode an object: %w", err)
	}
	if meta, ok := m["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
		if meta["creationTimestamp"] == nil {
			delete(meta, "creationTimestamp")
		}
	}
	return m, nil
}

// Member returns the nested map of a field and creates it if it is absent.
func Member(m map[string]any, field string) map[string]any {
	if s, ok := m[field].(map[string]any); ok {
		return s
	}
	s := map[string]any{}
	m[field] = s
	return s
}

// At returns the value at a path, or nil.
func At(o map[string]any, path []string) any {
	for _, member := range path[:len(path)-1] {
		o, _ = o[member].(map[string]any)
	}
	return o[path[len(path)-1]]
}

// DropServerFields removes fields from a merge patch that only the server sets.
func DropServerFields(patch map[string]any) {
	delete(patch, "kind")
	delete(patch, "apiVersion")
	meta, ok := patch["metadata"].(map[string]any)
	if !ok {
		return
	}
	for _, field := range []string{"resourceVersion", "generation", "creationTimestamp", "uid", "selfLink"} {
		delete(meta, field)
	}
	if len(meta) == 0 {
		delete(patch, "metadata")
	}
}
