package client

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"pgregory.net/rapid"
)

// Applying the difference of a and b to a makes b.
func TestDifferenceMakesTheOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := object(t, 3), object(t, 3)
		patch := difference(a, b)
		doc, _ := json.Marshal(a)
		raw, _ := json.Marshal(patch)
		got, err := jsonpatch.MergePatch(doc, raw)
		if err != nil {
			t.Fatal(err)
		}
		want, _ := json.Marshal(b)
		if !jsonpatch.Equal(got, want) {
			t.Fatalf("%s patched with %s is %s, want %s", doc, raw, got, want)
		}
		if len(difference(b, b)) != 0 {
			t.Fatal("an object differs from itself")
		}
	})
}

// object draws an object of JSON values. There is no null among them: a merge patch cannot set one.
func object(t *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for _, k := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, "keys") {
		m[k] = value(t, depth-1)
	}
	return m
}

func value(t *rapid.T, depth int) any {
	kinds := 3
	if depth <= 0 {
		kinds = 1
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 2:
		return object(t, depth)
	case 3:
		var list []any
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, value(t, depth-1))
		}
		return append([]any{}, list...)
	case 1:
		return rapid.Bool().Draw(t, "bool")
	}
	return rapid.SampledFrom([]string{"x", "y", ""}).Draw(t, "string")
}

func TestDifference(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ reason, a, b, want string }{
		{"nothing", `{"a":1}`, `{"a":1}`, `{}`},
		{"a change", `{"a":1,"b":{"c":2,"d":3}}`, `{"a":1,"b":{"c":4,"d":3}}`, `{"b":{"c":4}}`},
		{"a removal", `{"a":1,"b":{"c":2}}`, `{"b":{}}`, `{"a":null,"b":{"c":null}}`},
		{"a list as a whole", `{"l":[1,2]}`, `{"l":[1]}`, `{"l":[1]}`},
		{"an empty map", `{}`, `{"m":{}}`, `{"m":{}}`},
		{"null says nothing", `{"a":null}`, `{"a":null,"b":null}`, `{}`},
	} {
		parse := func(raw string) (m map[string]any) {
			if err := json.Unmarshal([]byte(raw), &m); err != nil {
				t.Fatal(err)
			}
			return m
		}
		a, b, want := parse(tc.a), parse(tc.b), parse(tc.want)
		if diff := cmp.Diff(want, difference(a, b)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
