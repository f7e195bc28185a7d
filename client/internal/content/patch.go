package content

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// AtVersion binds a patch to one version of the object.
func AtVersion(t types.PatchType, data []byte, version string) ([]byte, error) {
	if t == types.JSONPatchType {
		test, _ := json.Marshal(map[string]any{"op": "test", "path": "/metadata/resourceVersion", "value": version})
		var ops []json.RawMessage
		if err := json.Unmarshal(data, &ops); err != nil {
			return nil, fmt.Errorf("malformed json patch: %w", err)
		}
		return json.Marshal(append([]json.RawMessage{test}, ops...))
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("malformed patch: %w", err)
	}
	if m == nil {
		m = map[string]any{}
	}
	meta := Member(m, "metadata")
	if _, ok := meta["resourceVersion"]; !ok {
		meta["resourceVersion"] = version
	}
	return json.Marshal(m)
}

// ChangesNothing reports whether a patch leaves an object, given as JSON, unchanged. It returns false if that is
// unknown.
func ChangesNothing(t types.PatchType, data, object []byte) bool {
	trimmed := bytes.TrimSpace(data)
	if bytes.Equal(trimmed, []byte("{}")) || t == types.JSONPatchType && bytes.Equal(trimmed, []byte("[]")) {
		return true
	}
	if object == nil {
		return false
	}
	var after []byte
	var err error
	switch t {
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(object, data)
	case types.JSONPatchType:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(data); err == nil {
			after, err = p.Apply(object)
		}
	default:
		return false
	}
	return err == nil && jsonpatch.Equal(object, after)
}
