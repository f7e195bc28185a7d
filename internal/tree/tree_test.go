package tree_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/tree"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// check asserts the properties of any two objects.
func check(t interface{ Fatalf(string, ...any) }, a, b map[string]any) {
	if got, want := tree.Same(a, b), reflect.DeepEqual(a, b); got != want {
		t.Fatalf("Same(%v, %v) = %v, reflect.DeepEqual says %v", a, b, got, want)
	}
	if got, want := tree.Equal(a, b), reflect.DeepEqual(withoutNulls(a), withoutNulls(b)); got != want ||
		got != tree.Equal(b, a) {
		t.Fatalf("Equal(%v, %v) = %v, without nulls reflect.DeepEqual says %v", a, b, got, want)
	}
	patch := tree.Difference(a, b)
	if patched := merge(t, a, patch); !tree.Equal(patched, b) {
		t.Fatalf("%v patched with the difference %v is %v, want %v", a, patch, patched, b)
	}
	if len(patch) == 0 && !tree.Equal(a, b) {
		t.Fatalf("no difference of %v and %v", a, b)
	}
	if got, want := tree.Merged(b, a), tree.Equal(a, merge(t, a, b)); got != want {
		t.Fatalf("Merged(%v, %v) = %v, but the patch makes it %v", b, a, got, merge(t, a, b))
	}
	if !tree.Contains(a, a) || !tree.Includes(a, a) || !tree.Accounts(a, a, b) {
		t.Fatalf("%v is not the same as itself", a)
	}
	if tree.Contains(a, b) && !tree.Includes(a, b) {
		t.Fatalf("%v contains %v and does not include it", a, b)
	}
	if empty := map[string]any{}; tree.Empty(b) && !tree.Includes(empty, b) {
		t.Fatalf("nil does not include %v, which is empty", b)
	}
	if clean := withoutNulls(b).(map[string]any); !tree.Accounts(a, clean, tree.Difference(a, clean)) {
		t.Fatalf("the difference of %v and %v does not account for itself", a, clean)
	}
	if tree.Accounts(a, b, map[string]any{}) != tree.Same(a, b) {
		t.Fatalf("an empty patch accounts for the difference of %v and %v", a, b)
	}
}

// merge returns the result of a merge patch on an API server.
func merge(t interface{ Fatalf(string, ...any) }, a, patch map[string]any) (merged map[string]any) {
	doc, _ := json.Marshal(a)
	raw, _ := json.Marshal(patch)
	out, err := jsonpatch.MergePatch(doc, raw)
	if err == nil {
		err = json.Unmarshal(out, &merged)
	}
	if err != nil {
		t.Fatalf("%s patched with %s: %v", doc, raw, err)
	}
	return merged
}

func withoutNulls(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for name, x := range v {
			if x != nil {
				m[name] = withoutNulls(x)
			}
		}
		return m
	case []any:
		l := []any{}
		for _, x := range v {
			l = append(l, withoutNulls(x))
		}
		return l
	}
	return v
}

func TestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { check(t, object(t, 3), object(t, 3)) })
}

func FuzzCompare(f *testing.F) {
	f.Add(`{"a":{"b":null,"c":[1,{"d":null}]}}`, `{"a":{"c":[1,{}]},"e":""}`)
	f.Add(`{"a":{"b":1}}`, `{"a":{"b":{}}}`)
	f.Add(`{"a":[]}`, `{"a":{"a":[{}]}}`)
	f.Fuzz(func(t *testing.T, one, other string) {
		var a, b map[string]any
		if json.Unmarshal([]byte(one), &a) != nil || json.Unmarshal([]byte(other), &b) != nil || a == nil || b == nil {
			return
		}
		check(t, a, b)
	})
}

func TestSameKnowsOtherTypes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b any
		want bool
	}{
		{json.Number("1"), json.Number("1"), true},
		{json.Number("1"), "1", false},
		{int64(1), float64(1), false},
		{int64(1), int64(1), true},
		{[]string{"a"}, []string{"a"}, true},
		{[]any(nil), []any{}, false},
		{map[string]any(nil), map[string]any{}, false},
		{nil, map[string]any(nil), false},
		{true, true, true},
		{"", nil, false},
	} {
		if got := tree.Same(tc.a, tc.b); got != tc.want || got != reflect.DeepEqual(tc.a, tc.b) {
			t.Errorf("Same(%#v, %#v) = %v", tc.a, tc.b, got)
		}
	}
}

func TestAllocations(t *testing.T) {
	a := map[string]any{"a": []any{"x", 1.5, true, nil}, "b": map[string]any{"c": int64(7)}}
	b := map[string]any{"a": []any{"x", 1.5, true, nil}, "b": map[string]any{"c": int64(8)}}
	if n := testing.AllocsPerRun(100, func() { _ = tree.Same(a, b) || tree.Accounts(a, b, b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// The three functions agree unless the case says otherwise.
func TestFindIn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, have, want         string
		merged, contains, includes bool
	}{
		{"all of it", `{"a":1,"b":{"c":"x"}}`, `{"a":1,"b":{"c":"x"}}`, true, true, true},
		{"more members", `{"a":1,"b":{"c":"x","d":2}}`, `{"b":{"c":"x"}}`, true, true, true},
		{"another value", `{"a":1}`, `{"a":2}`, false, false, false},
		{"a missing member", `{}`, `{"a":false}`, false, false, false},
		{"null stands for absence in a patch", `{"a":1}`, `{"a":null}`, false, false, true},
		{"and the member is absent", `{}`, `{"a":null}`, true, false, true},
		{"an empty string is dropped by servers", `{}`, `{"a":""}`, false, false, true},
		{"so is a map whose members are null", `{}`, `{"a":{"b":null}}`, false, false, true},
		{"but not instead of another value", `{"a":"y"}`, `{"a":""}`, false, false, false},
		{"a list element with more members", `{"l":[{"a":1,"b":2}]}`, `{"l":[{"a":1}]}`, false, true, true},
		{"a list with more elements", `{"l":["a","x","b"]}`, `{"l":["a","b"]}`, false, false, true},
		{"in another order", `{"l":["b","a"]}`, `{"l":["a","b"]}`, false, false, false},
		{"with one element less", `{"l":["a"]}`, `{"l":["a","b"]}`, false, false, false},
		{"an empty list instead of none", `{}`, `{"l":[]}`, false, false, true},
		{"a map instead of a value", `{"a":1}`, `{"a":{}}`, false, false, false},
	} {
		have, want := parse(t, tc.have), parse(t, tc.want)
		if got := tree.Merged(want, have); got != tc.merged {
			t.Errorf("%s: Merged is %v", tc.reason, got)
		}
		if got := tree.Contains(have, want); got != tc.contains {
			t.Errorf("%s: Contains is %v", tc.reason, got)
		}
		if got := tree.Includes(have, want); got != tc.includes {
			t.Errorf("%s: Includes is %v", tc.reason, got)
		}
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, before, after, asked string
		want                         bool
	}{
		{"the requested change", `{"a":1,"b":2}`, `{"a":2,"b":2}`, `{"a":2}`, true},
		{"another value", `{"a":1}`, `{"a":3}`, `{"a":2}`, false},
		{"a further change", `{"a":1,"b":1}`, `{"a":2,"b":2}`, `{"a":2}`, false},
		{"a further addition", `{"a":{"x":1}}`, `{"a":{"x":2,"y":1}}`, `{"a":{"x":2}}`, false},
		{"a requested removal", `{"a":1,"b":2}`, `{"b":2}`, `{"a":null}`, true},
		{"another removal", `{"a":1,"b":2}`, `{"b":2}`, `{"a":1}`, false},
		{"a new map", `{}`, `{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":1}}}`, true},
		{"the requested list", `{"l":[1]}`, `{"l":[1,2]}`, `{"l":[1,2]}`, true},
		{"a list with more", `{"l":[1]}`, `{"l":[1,2,3]}`, `{"l":[1,2]}`, false},
		{"a request without effect", `{"a":1}`, `{"a":1}`, `{"a":2}`, true},
	} {
		if got := tree.Accounts(parse(t, tc.before), parse(t, tc.after), parse(t, tc.asked)); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}

func TestAccountsForAll(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, before, after string
		asked                 []string
		want                  bool
	}{
		{"changes of two patches", `{"a":{"x":1}}`, `{"a":{"x":2,"y":3}}`, []string{`{"a":{"x":2}}`, `{"a":{"y":3}}`}, true},
		{
			"a change outside both patches", `{"a":{"x":1}}`, `{"a":{"x":2,"y":3,"z":4}}`,
			[]string{`{"a":{"x":2}}`, `{"a":{"y":3}}`},
			false,
		},
		{"one of two values", `{"a":1}`, `{"a":2}`, []string{`{"a":2}`, `{"a":3}`}, true},
		{"a value of neither patch", `{"a":1}`, `{"a":4}`, []string{`{"a":2}`, `{"a":3}`}, false},
		{"a removal by one of them", `{"a":1,"b":2}`, `{"b":3}`, []string{`{"a":null}`, `{"b":3}`}, true},
		{"a removal by none", `{"a":1,"b":2}`, `{"b":3}`, []string{`{"a":5}`, `{"b":3}`}, false},
		{"a new map of two patches", `{}`, `{"a":{"x":1,"y":2}}`, []string{`{"a":{"x":1}}`, `{"a":{"y":2}}`}, true},
		{"no change at all", `{"a":1}`, `{"a":1}`, []string{`{"a":2}`, `{"a":3}`}, true},
		{"no patch", `{"a":1}`, `{"a":2}`, nil, false},
	} {
		var asked []any
		for _, raw := range tc.asked {
			asked = append(asked, parse(t, raw))
		}
		if got := tree.AccountsForAll(parse(t, tc.before), parse(t, tc.after), asked); got != tc.want {
			t.Errorf("%s: %v", tc.reason, got)
		}
	}
}

func parse(t *testing.T, raw string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// object draws an object of JSON values.
func object(t *rapid.T, depth int) map[string]any {
	m := map[string]any{}
	for _, k := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3).Draw(t, "keys") {
		m[k] = value(t, depth-1)
	}
	return m
}

func value(t *rapid.T, depth int) any {
	kinds := 4
	if depth <= 0 {
		kinds = 2
	}
	switch rapid.IntRange(0, kinds).Draw(t, "kind") {
	case 3:
		return object(t, depth)
	case 4:
		var list []any
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, value(t, depth-1))
		}
		return append([]any{}, list...)
	case 2:
		return nil
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
		{"null equals absence", `{"a":null}`, `{"a":null,"b":null}`, `{}`},
	} {
		a, b, want := parse(t, tc.a), parse(t, tc.b), parse(t, tc.want)
		if diff := cmp.Diff(want, tree.Difference(a, b)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
