package call

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// fieldsOf returns the fields that a manager owns through an operation, Apply or Update, as FieldsV1 (KEP-555); nil if
// it owns none.
func fieldsOf(live map[string]any, manager, subresource, operation string) map[string]any {
	entries, _ := tree.At(live, "metadata", "managedFields").([]any)
	for _, e := range entries {
		by, _ := tree.At(e, "manager").(string)
		of, _ := tree.At(e, "subresource").(string)
		if by == manager && of == subresource && tree.At(e, "operation") == operation {
			fields, _ := tree.At(e, "fieldsV1").(map[string]any)
			return fields
		}
	}
	return nil
}

// setByUs reports whether this client may have set the values of a merge patch that the live object contains. A manager
// that changes a field owns it. If other managers own all of the values, they set them. setByUs returns true for a
// patch that only removes fields and for a server without managedFields, because both leave no evidence.
func setByUs(r *Request, sent []byte, live map[string]any) bool {
	manager := r.Query.Get("fieldManager")
	entries, _ := tree.At(live, "metadata", "managedFields").([]any)
	var patch map[string]any
	if manager == "" || len(entries) == 0 || json.Unmarshal(sent, &patch) != nil {
		return true
	}
	withoutServerFields(patch)
	set, owned := ownsAny(fieldsOf(live, manager, r.Subresource, "Update"), patch)
	return owned || !set
}

// ownsAny reports whether a patch sets any field, and whether fields includes one of those.
func ownsAny(fields any, patch map[string]any) (set, owned bool) {
	for name, value := range patch {
		below := tree.At(fields, "f:"+name)
		switch v := value.(type) {
		case nil:
		case map[string]any:
			s, o := ownsAny(below, v)
			set, owned = set || s, owned || o
		default:
			set, owned = true, owned || below != nil
		}
	}
	return set, owned
}

// ownsNoMore reports whether an apply of want leaves its manager with all fields that it owns now. If not, a field that
// the apply removes is still there. A field that is owned as a whole must be equal in want and live.
func ownsNoMore(fields, want, live any) bool {
	owned, ok := fields.(map[string]any)
	if !ok || len(owned) == 0 {
		return tree.Same(want, live)
	}
	for name, below := range owned {
		kind, rest, _ := strings.Cut(name, ":")
		switch kind {
		case ".": // the element itself
		case "f":
			w, ok := want.(map[string]any)
			if _, sent := w[rest]; !ok || !sent || !ownsNoMore(below, w[rest], tree.At(live, rest)) {
				return false
			}
		case "k":
			w, l := element(want, rest), element(live, rest)
			if w == nil || l == nil || !ownsNoMore(below, w, l) {
				return false
			}
		case "v":
			w, _ := want.([]any)
			var value any
			if json.Unmarshal([]byte(rest), &value) != nil || !slices.ContainsFunc(w,
				func(x any) bool { return tree.Same(x, value) }) {
				return false
			}
		default: // an index, which no served API uses
			return false
		}
	}
	return true
}

// element finds the element of a list by its key fields. Key fields that were not sent have defaults, so it ignores
// them.
func element(list any, key string) map[string]any {
	var keys map[string]any
	if json.Unmarshal([]byte(key), &keys) != nil {
		return nil
	}
	elements, _ := list.([]any)
	for _, e := range elements {
		m, _ := e.(map[string]any)
		same := 0
		for k, v := range keys {
			if x, there := m[k]; !there {
				continue
			} else if !tree.Same(x, v) {
				same = -1
				break
			}
			same++
		}
		if same > 0 {
			return m
		}
	}
	return nil
}
