package client

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// Patch is a change of an object.
type Patch struct {
	typ  types.PatchType
	data []byte
	from Object
}

// RawPatch is a patch that is encoded already: a JSON patch (RFC 6902), a merge patch (RFC 7396) or a strategic merge
// patch.
//
// What a JSON or a strategic merge patch has changed cannot be told from what it says. Within a reconciliation its
// event is therefore not known as an own echo, and has the object reconciled once more, unless the patch holds for one
// version: [SameVersion]. Merge patches and applies need no lock for that.
func RawPatch(t types.PatchType, data []byte) Patch { return Patch{typ: t, data: data} }

// MergeFrom is the merge patch that makes the patched object of base, which is only read. Lists are replaced as a
// whole; with [SameVersion] nobody else's change to them can be lost.
func MergeFrom(base Object) Patch { return Patch{typ: types.MergePatchType, from: base} }

// bytes returns the patch for an object, and the resourceVersion that it was computed from, if it is known.
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

// dropServerFields takes out of a patch what is not ours to change.
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

// locked returns the patch bound to one version of the object.
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

// changesNothing says whether a patch leaves an object, given as JSON, as it is. What cannot be told is a change.
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
