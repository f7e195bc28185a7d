package admission

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/tree"
)

func parsed(t rapid.TB, text string) (v any) {
	if err := decodeTree([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPatch(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason             string
		raw, before, after string
		want               string // empty: no patch
	}{
		{"nothing", `{"a":1}`, `{"a":1}`, `{"a":1}`, ``},
		{"what encoders add", `{"a":1}`, `{"a":1,"status":{}}`, `{"a":1,"status":{}}`, ``},
		{"a value", `{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"a":3,"b":2}`, `[{"op":"replace","path":"/a","value":3}]`},
		{"false", `{"a":true}`, `{"a":true}`, `{"a":false}`, `[{"op":"replace","path":"/a","value":false}]`},
		{"a member", `{}`, `{}`, `{"a":{"b":1}}`, `[{"op":"add","path":"/a","value":{"b":1}}]`},
		{"no member", `{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"b":2}`, `[{"op":"remove","path":"/a"}]`},
		{"no member that only the encoder adds", `{}`, `{"a":null}`, `{}`, ``},
		{
			"below a member that only the encoder adds", `{}`, `{"status":{}}`, `{"status":{"ok":true}}`,
			`[{"op":"add","path":"/status","value":{"ok":true}}]`,
		},
		{"below null", `{"a":null}`, `{"a":{}}`, `{"a":{"b":1}}`, `[{"op":"replace","path":"/a","value":{"b":1}}]`},
		{
			"a member unknown to the type stays", `{"a":{"x":1,"new":2}}`, `{"a":{"x":1}}`, `{"a":{"x":3}}`,
			`[{"op":"replace","path":"/a/x","value":3}]`,
		},
		{"a path", `{"m":{}}`, `{"m":{}}`, `{"m":{"a/b~c":"1"}}`, `[{"op":"add","path":"/m/a~1b~0c","value":"1"}]`},
		{"an element at the end", `[1]`, `[1]`, `[1,2]`, `[{"op":"add","path":"/-","value":2}]`},
		{"an element at the beginning", `[1]`, `[1]`, `[2,1]`, `[{"op":"add","path":"/0","value":2}]`},
		{
			"elements between", `[1,4]`, `[1,4]`, `[1,2,3,4]`,
			`[{"op":"add","path":"/1","value":2},{"op":"add","path":"/2","value":3}]`,
		},
		{
			"no first element", `[{"name":"a"},{"name":"b"}]`, `[{"name":"a"},{"name":"b"}]`, `[{"name":"b"}]`,
			`[{"op":"remove","path":"/0"}]`,
		},
		{
			"an element that has changed", `[{"name":"a","new":1}]`, `[{"name":"a"}]`, `[{"name":"a","v":2}]`,
			`[{"op":"add","path":"/0/v","value":2}]`,
		},
		{
			"another element", `[{"name":"a","new":1}]`, `[{"name":"a"}]`, `[{"name":"b"}]`,
			`[{"op":"replace","path":"/0","value":{"name":"b"}}]`,
		},
	} {
		got, err := patchOf(parsed(t, tc.raw), parsed(t, tc.before), parsed(t, tc.after))
		if err != nil {
			t.Fatal(err)
		}
		if tc.want == "" || got == nil {
			if tc.want != string(got) {
				t.Errorf("%s: got %s", tc.reason, got)
			}
			continue
		}
		if diff := cmp.Diff(parsed(t, tc.want), parsed(t, string(got))); diff != "" {
			t.Errorf("%s: %s", tc.reason, diff)
		}
	}
}

// value draws a JSON value.
func value(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 2), func(n int) any { return int64(n) }),
		rapid.Map(rapid.SampledFrom([]string{"", "x", "y/~"}), func(s string) any { return s }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
	)
	if depth == 0 {
		return leaf
	}
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(value(depth-1), 0, 4), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "name", "c/d~"}), value(depth-1), 0, 4),
			func(m map[string]any) any { return m }),
	)
}

// Applied by the API server's implementation, a patch makes the function's change to its view of the object.
func TestPatchesApply(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		document := func(name string) any { return map[string]any{"spec": value(3).Draw(t, name)} }
		before, after := document("before"), document("after")
		patch, err := patchOf(before, before, after)
		if err != nil {
			t.Fatal(err)
		}
		if tree.Same(before, after) != (patch == nil) {
			t.Fatalf("patch %s, changed: %v", patch, !tree.Same(before, after))
		}
		if patch == nil {
			return
		}
		raw, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		p, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.Apply(raw)
		if err != nil {
			t.Fatalf("%s cannot be applied: %v", patch, err)
		}
		want, err := json.Marshal(after)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(parsed(t, string(want)), parsed(t, string(got))); diff != "" {
			t.Fatalf("%s: %s", patch, diff)
		}
	})
}
