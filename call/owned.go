package call

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// fieldsOf returns what a manager owns by an operation, Apply or Update, in the form of FieldsV1 (KEP-555); nil where it owns nothing.
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

// setByUs says whether a merge patch that the live object has all the values of may have set them: whoever changes a field owns it, so
// that the same values of which another manager owns each are what that one wrote. Patches that only remove, and servers that keep no
// managedFields, leave no trace to look for.
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

// ownsAny says whether a patch sets any field, and whether one of those is owned.
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

// ownsNoMore says whether an apply of want leaves its manager the fields that it owns now: if it does not, what it removes is
// still there. A field that is owned as a whole must be the same in both.
func ownsNoMore(fields, want, live any) bool {
	owned, ok := fields.(map[string]any)
	if !ok || len(owned) == 0 {
		return tree.Same(want, live)
	}
	for name, below := range owned {
		kind, rest, _ := strings.Cut(name, ":")
		switch kind {
		case ".": // the thing itself
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
			if json.Unmarshal([]byte(rest), &value) != nil || !slices.ContainsFunc(w, func(x any) bool { return tree.Same(x, value) }) {
				return false
			}
		default: // an index, which nothing that is served uses
			return false
		}
	}
	return true
}

// element finds the element of a list by its key fields. Those that were not sent have their defaults.
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
