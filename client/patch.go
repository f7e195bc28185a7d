package client

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// Patch describes a change of an object.
type Patch struct {
	typ  types.PatchType
	data []byte
	from Object
}

// RawPatch returns a patch from encoded data: a JSON patch (RFC 6902), a merge patch (RFC 7396) or a strategic merge
// patch.
//
// The text of a JSON or strategic merge patch does not determine the resulting object. Within a reconciliation, its
// event is therefore not recognised as the reconciler's own and triggers another reconciliation, unless the patch has
// [SameVersion]. Merge patches and applies do not need SameVersion for that.
func RawPatch(t types.PatchType, data []byte) Patch { return Patch{typ: t, data: data} }

// MergeFrom returns the merge patch that changes base into the patched object. It only reads base. A merge patch
// replaces lists as a whole; use [SameVersion] to avoid losing concurrent changes of them.
func MergeFrom(base Object) Patch { return Patch{typ: types.MergePatchType, from: base} }

// bytes returns the patch for an object and the resourceVersion that it was computed from, if known.
func (p Patch) bytes(obj Object) (data []byte, version string, err error) {
	if p.from == nil {
		return p.data, obj.GetResourceVersion(), nil
	}
	before, err := content(p.from)
	if err != nil {
		return nil, "", err
	}
	after, err := content(obj)
	if err != nil {
		return nil, "", err
	}
	d := tree.Difference(before, after)
	dropServerFields(d)
	data, err = json.Marshal(d)
	return data, p.from.GetResourceVersion(), err
}

// dropServerFields removes fields from a patch that only the server sets.
func dropServerFields(patch map[string]any) {
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

// locked binds a patch to one version of the object.
func locked(t types.PatchType, data []byte, version string) ([]byte, error) {
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
	meta := sub(m, "metadata")
	if _, ok := meta["resourceVersion"]; !ok {
		meta["resourceVersion"] = version
	}
	return json.Marshal(m)
}

// changesNothing reports whether a patch leaves an object, given as JSON, unchanged. It returns false if that is
// unknown.
func changesNothing(t types.PatchType, data, object []byte) bool {
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
