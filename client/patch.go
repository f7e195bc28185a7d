package client

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/client/internal/content"
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
	before, err := content.Of(p.from)
	if err != nil {
		return nil, "", err
	}
	after, err := content.Of(obj)
	if err != nil {
		return nil, "", err
	}
	d := tree.Difference(before, after)
	content.DropServerFields(d)
	data, err = json.Marshal(d)
	return data, p.from.GetResourceVersion(), err
}
