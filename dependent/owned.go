package dependent

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/tree"
)

// sum is a truncated SHA-256 hash.
type sum [16]byte

func sumOf(h hash.Hash) (s sum) {
	copy(s[:], h.Sum(nil))
	return s
}

func sumOfJSON(data []byte) sum {
	full := sha256.Sum256(data)
	return sum(full[:16])
}

// fieldsOf returns the fields that a manager owns by apply, in the format of managedFields (KEP-555). It returns "" if
// there are none.
func fieldsOf(managed []metav1.ManagedFieldsEntry, manager string) string {
	for _, e := range managed {
		if e.Manager == manager && e.Operation == metav1.ManagedFieldsOperationApply && e.Subresource == "" &&
			e.FieldsV1 != nil {
			return e.FieldsV1.GetRawString()
		}
	}
	return ""
}

// sumOwned returns a hash of the owned fields of an object. Equal hashes mean equal values in these fields; other
// fields are ignored. Where want has an empty map or list, only the existence of the field counts.
func sumOwned(fields string, have, want map[string]any) (sum, error) {
	var owned map[string]any
	if err := json.Unmarshal([]byte(fields), &owned); err != nil {
		return sum{}, fmt.Errorf("cannot read managedFields: %w", err)
	}
	s := summing{h: sha256.New()}
	s.members(owned, have, want)
	return sumOf(s.h), s.err
}

type summing struct {
	h   hash.Hash
	err error
}

func (s *summing) word(w string) {
	s.h.Write(strconv.AppendInt(nil, int64(len(w)), 10))
	s.h.Write([]byte(":" + w))
}

// members hashes a tree of fields. "f:name" is a member of a map. In lists, "k:{…}" is the element with these keys,
// "v:…" the element with this value, and "i:n" the element with this index. "." is the field itself.
func (s *summing) members(fields map[string]any, have, want any) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		s.word(name)
		if name == "." {
			continue
		}
		h, there := member(have, name, tree.Same)
		w, _ := member(want, name, alike)
		inner, _ := fields[name].(map[string]any)
		switch {
		case !there:
			s.word("none")
		case len(inner) > 0:
			s.word("{")
			s.members(inner, h, w)
			s.word("}")
		case strings.HasPrefix(name, "v:"), hollow(w):
			s.word("some")
		default:
			s.value(h)
		}
	}
}

func (s *summing) value(v any) {
	data, err := json.Marshal(v)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.word(string(data))
}

// hollow reports whether v is an empty map or list.
func hollow(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// alike compares a key of a list element. The desired element may omit a key for which the API server sets a default.
func alike(have, key any) bool { return have == nil || tree.Same(have, key) }

// member returns the value for a name in managedFields.
func member(in any, name string, same func(have, key any) bool) (v any, there bool) {
	kind, rest, _ := strings.Cut(name, ":")
	switch kind {
	case "f":
		m, _ := in.(map[string]any)
		v, there = m[rest]
		return v, there
	case "k":
		keys, err := decode([]byte(rest))
		if err != nil {
			return nil, false
		}
		return element(in, func(v any) bool {
			m, ok := v.(map[string]any)
			for k, key := range keys {
				ok = ok && same(m[k], key)
			}
			return ok
		})
	case "v":
		var value any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(rest), &value) != nil {
			return nil, false
		}
		return element(in, func(v any) bool { return tree.Same(v, value) })
	case "i":
		var n int
		list, _ := in.([]any)
		if json.Unmarshal([]byte(rest), &n) != nil || n < 0 || n >= len(list) {
			return nil, false
		}
		return list[n], true
	}
	return nil, false
}

func element(in any, is func(v any) bool) (v any, there bool) {
	list, _ := in.([]any)
	i := slices.IndexFunc(list, is)
	if i < 0 {
		return nil, false
	}
	return list[i], true
}

func decode(raw []byte) (m map[string]any, err error) {
	err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &m)
	return m, err
}

// content returns an object as JSON values without nulls. Go types encode some unset fields as null.
func content(obj any) (map[string]any, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %T: %w", obj, err)
	}
	m, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("cannot decode %T: %w", obj, err)
	}
	if bytes.Contains(raw, []byte("null")) {
		dropNulls(m)
	}
	return m, nil
}

func dropNulls(v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
				continue
			}
			dropNulls(member)
		}
	case []any:
		for _, e := range v {
			dropNulls(e)
		}
	}
}
