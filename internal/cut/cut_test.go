package cut_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/cut"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func paths(t testing.TB, texts ...string) *cut.Paths {
	t.Helper()
	p, err := cut.Parse(texts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		reason string
		paths  []string
		want   string
		err    string
	}{
		{"nothing", nil, "", ""},
		{"members and keys", []string{"data", "metadata.annotations[a.b/c]"}, "data, metadata.annotations[a.b/c]", ""},
		{"the order does not matter", []string{"b", "a.c", "a.b"}, "a.b, a.c, b", ""},
		{"a path within another one is redundant", []string{"a.b.c", "a.b", "a.bc"}, "a.b, a.bc", ""},
		{"duplicates are removed", []string{"a", "a", "[a]"}, "a", ""},
		{"a key needs no brackets", []string{"data[x].y", "data.z"}, "data.x.y, data.z", ""},
		{"a dot before a bracket", []string{"data.[x.y][z]"}, "data[x.y].z", ""},
		{"empty", []string{""}, "", "a member has no name"},
		{"a dot at the beginning", []string{".data"}, "", "a member has no name"},
		{"a dot at the end", []string{"data."}, "", "a member has no name"},
		{"two dots", []string{"a..b"}, "", "a member has no name"},
		{"an unclosed bracket", []string{"a[b"}, "", "bracket"},
		{"an unopened bracket", []string{"a]b"}, "", "bracket"},
		{"text after a bracket", []string{"a[b]c"}, "", "bracket"},
		{"empty brackets", []string{"a[]"}, "", "a member has no name"},
		{"all elements", []string{"spec.containers[*].env"}, "", "does not go through lists"},
	} {
		p, err := cut.Parse(test.paths)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: error %v, want %q", test.reason, err, test.err)
			}
			continue
		}
		if err != nil || p.String() != test.want {
			t.Errorf("%s: got %q, %v, want %q", test.reason, p, err, test.want)
		}
		for i := range p.Len() { // the text form parses to the same path
			if again := paths(t, p.Text(i)); !reflect.DeepEqual(again.Path(0), p.Path(i)) {
				t.Errorf("%s: %q is read as %q", test.reason, p.Text(i), again.Path(0))
			}
		}
	}
}

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	p := paths(t, "data", "metadata.annotations[a.b/c]", "spec.template", "x.y.z")
	for _, test := range []struct {
		reason, in, want string
		found            []int
	}{
		{"no such member", `{"kind":"A" , "spec":{}}`, `{"kind":"A" , "spec":{}}`, nil},
		{"empty", ` { } `, ` { } `, nil},
		{"the only one", `{"data":{"a":"b"}}`, `{}`, []int{0}},
		{"the first one", `{"data":{"a":"b"} , "kind":"A"}`, `{"kind":"A"}`, []int{0}},
		{"the last one", `{"kind":"A", "data":[1,{"data":2}] }`, `{"kind":"A" }`, []int{0}},
		{"between others", `{"a":1,"data":"secret","b":2}`, `{"a":1,"b":2}`, []int{0}},
		{"twice", `{"data":1,"a":1,"data":2,"b":2,"data":3}`, `{"a":1,"b":2}`, []int{0}},
		{"two in a row", `{"data":1,"data":2,"b":2}`, `{"b":2}`, []int{0}},
		{"with an escape", `{"a":1,"d\u0061ta":"secret"}`, `{"a":1}`, []int{0}},
		{"a nested member of that name stays", `{"spec":{"data":1}}`, `{"spec":{"data":1}}`, nil},
		{"a null stays", `{"data":null,"b":1}`, `{"b":1}`, nil},
		{
			"a key with dots", `{"metadata":{"annotations":{"a.b/c":1,"d":2}}}`, `{"metadata":{"annotations":{"d":2}}}`,
			[]int{1},
		},
		{"several", `{"spec":{"template":{}},"data":"","x":{"y":{"z":1}}}`, `{"spec":{},"x":{"y":{}}}`, []int{0, 2, 3}},
		{"a value in place of an object", `{"spec":"text","x":{"y":7}}`, `{"spec":"text","x":{"y":7}}`, nil},
		{"a null on the path", `{"spec":null,"x":{"y":null}}`, `{"spec":null,"x":{"y":null}}`, nil},
	} {
		out, found, err := p.AppendJSON([]byte("before"), []byte(test.in))
		if err != nil || string(out) != "before"+test.want {
			t.Errorf("%s: got %s, %v, want %s", test.reason, out, err, test.want)
		}
		var got []int
		for i := range p.Len() {
			if found.Has(i) {
				got = append(got, i)
			}
		}
		if diff := cmp.Diff(test.found, got); diff != "" {
			t.Errorf("%s: found (-want +got):\n%s", test.reason, diff)
		}
	}
}

func TestAppendJSONRefuses(t *testing.T) {
	t.Parallel()
	p := paths(t, "spec.containers.env", "data")
	for _, test := range []struct {
		reason, in string
		list       bool
	}{
		{"a list on the path", `{"spec":{"containers":[{"env":[]}]}}`, true},
		{"an empty list on the path", `{"spec":[]}`, true},
		{"not an object", `["data"]`, false},
		{"nothing", ``, false},
		{"cut short", `{"data":"x"`, false},
		{"cut short in a name", `{"da`, false},
		{"trailing data", `{"data":1}{}`, false},
		{"no colon", `{"data" 1}`, false},
		{"no comma", `{"a":1 "data":1}`, false},
		{"a trailing comma", `{"data":1,}`, false},
	} {
		out, _, err := p.AppendJSON([]byte("before"), []byte(test.in))
		if err == nil || string(out) != "before" || errors.Is(err, cut.ErrList) != test.list {
			t.Errorf("%s: got %q, %v", test.reason, out, err)
		}
	}
}

// The result has one bit for each of the first paths, and one bit for all others.
func TestManyPaths(t *testing.T) {
	t.Parallel()
	var texts []string
	for i := range 40 {
		texts = append(texts, "p"+string(rune('a'+i/10))+string(rune('0'+i%10)))
	}
	p := paths(t, texts...)
	_, found, err := p.AppendJSON(nil, []byte(`{"`+p.Text(3)+`":1,"`+p.Text(38)+`":1}`))
	if err != nil || !found.Has(3) || found.Has(4) || !found.Has(38) {
		t.Errorf("found %b, %v", found, err)
	}
	var none *cut.Paths
	if out, found, err := none.AppendJSON(nil, []byte(`{"a":1}`)); string(out) != `{"a":1}` || found != 0 || err != nil {
		t.Errorf("no paths: got %s, %v, %v", out, found, err)
	}
}

// errInList is the error of remove for a path through a list.
var errInList = errors.New("a list")

// remove deletes a path from a decoded object.
func remove(o map[string]any, path []string) error {
	if len(path) == 1 {
		delete(o, path[0])
		return nil
	}
	switch below := o[path[0]].(type) {
	case map[string]any:
		return remove(below, path[1:])
	case []any:
		return errInList
	}
	return nil
}

// FuzzAppendJSON: the result equals that of decoding, removing the paths, and encoding.
func FuzzAppendJSON(f *testing.F) {
	for _, seed := range []string{
		`{"data":{"a":"b"},"metadata":{"annotations":{"a.b/c":"x","d":"e"}}}`,
		`{"spec":{"template":{"a":[1,{"b":null}]}},"x":[]}`,
		`{ "data" : 1 , "data" : 2 , "é" : "\ud83d\ude00" }`,
		`{"x":{"y":{"z":[]}},"x":{"y":[]}}`,
		"{\"d\\u0061ta\":1,\"\xff\":2}",
	} {
		f.Add([]byte(seed))
	}
	texts := []string{"data", "metadata.annotations[a.b/c]", "spec.template", "x.y.z", "é", "�"}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p := paths(t, texts...)
		out, _, err := p.AppendJSON(nil, raw)
		var want, got map[string]any
		if json.Unmarshal(raw, &want) != nil || want == nil {
			if err == nil && json.Valid(raw) {
				t.Fatalf("cut %q, which is not an object", raw)
			}
			return
		}
		for i := range p.Len() {
			if remove(want, p.Path(i)) != nil {
				if !errors.Is(err, cut.ErrList) {
					t.Fatalf("%q has a list on the path %s: %v", raw, p.Text(i), err)
				}
				return
			}
		}
		if errors.Is(err, cut.ErrList) { // of a duplicate member, of which the last one counts
			return
		}
		if err != nil {
			t.Fatalf("cannot cut %q: %v", raw, err)
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%q was cut to %q: %v", raw, out, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q was cut to %q (-want +got):\n%s", raw, out, diff)
		}
	})
}
