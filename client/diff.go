package client

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// content is an object as JSON values, without what only the server sets (managedFields) and what says nothing (a null
// creationTimestamp).
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

// difference is the JSON merge patch (RFC 7396) that makes b of a; empty when they are equal. Lists are replaced as a whole, which is
// safe because the patch is sent with the resourceVersion of a.
func difference(a, b map[string]any) map[string]any {
	patch := map[string]any{}
	for k := range a {
		if _, ok := b[k]; !ok {
			patch[k] = nil
		}
	}
	for k, bv := range b {
		av, ok := a[k]
		if bv == nil {
			if ok && av != nil {
				patch[k] = nil
			}
			continue
		}
		am, aok := av.(map[string]any)
		bm, bok := bv.(map[string]any)
		switch {
		case aok && bok:
			if d := difference(am, bm); len(d) > 0 {
				patch[k] = d
			}
		case bok:
			// In a merge patch null means removal, so a new map is spelled out against an empty one; an empty one stays.
			patch[k] = difference(map[string]any{}, bm)
		case !ok || !reflect.DeepEqual(av, bv):
			patch[k] = bv
		}
	}
	return patch
}

// sub returns a nested map, made where it is absent.
func sub(m map[string]any, field string) map[string]any {
	if s, ok := m[field].(map[string]any); ok {
		return s
	}
	s := map[string]any{}
	m[field] = s
	return s
}

// contains says whether have has every field of want, lists being equal. It is what a matcher asks before an apply.
func contains(have, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for k, v := range w {
			hv, ok := h[k]
			if !ok || !contains(hv, v) {
				return false
			}
		}
		return true
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			return false
		}
		for i := range w {
			if !contains(h[i], w[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(have, want)
}
