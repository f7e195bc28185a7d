package client

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// content returns an object as JSON values, without managedFields, which only the server sets, and without a null
// creationTimestamp.
func content(obj runtime.Object) (map[string]any, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T: %w", obj, err)
	}
	return contentOf(raw)
}

func contentOf(raw []byte) (map[string]any, error) {
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

// sub returns the nested map of a field and creates it if it is absent.
func sub(m map[string]any, field string) map[string]any {
	if s, ok := m[field].(map[string]any); ok {
		return s
	}
	s := map[string]any{}
	m[field] = s
	return s
}
