package untyped

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/corpus"
)

// shared decodes data as a read-only object, which must equal the result of any other decoding.
func shared(t *testing.T, d *Decoder, data []byte) map[string]any {
	t.Helper()
	var want map[string]any
	wantErr := kjson.UnmarshalCaseSensitivePreserveInts(slices.Clone(data), &want)
	given := slices.Clone(data)
	got, err := d.UnmarshalShared(given)
	for i := range given {
		given[i] = 'x' // the result must not refer to the input
	}
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("error %v, want %v, of %q", err, wantErr, data)
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%q was decoded as %v", data, got)
	}
	return got
}

func TestShared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, data string }{
		{"not an object", `[{"a":{}}]`},
		{"empty", `{}`},
		{"nested", `{"a":{"b":[1,{"c":[]},[2]]},"d":[{},{}]}`},
		{"white space", " { \"a\" : { \"b\" : [ ] , \"c\" : [ 1 , { } ] } } \n"},
		{"brackets, commas and quotes in strings", `{"a":{"}":"]\"{,"},"b":["[\\",{"c":"\\\""}]}`},
		{"two members of one name", `{"a":{"b":1,"b":{"c":2}},"a":{"b":[]}}`},
		{"equal parts within each other", `{"a":{"a":{"a":{}}},"b":{"a":{"a":{}}},"c":{"a":{}}}`},
		{"wrong brackets", `{"a":[1}}`},
		{"a bracket too many", `{"a":{}}}`},
		{"a bracket too few", `{"a":{"b":[]}`},
		{"cut in a string", `{"a":["b`},
		{"malformed within", `{"a":{"b":[1 2]}}`},
		{"escapes", `{"\u0061":{"b":["\u00e9\n"]}}`},
		{"large", `{"a":["` + strings.Repeat("b", 2*maxTree) + `",{"c":[1]}]}`},
		{"very deep", strings.Repeat(`{"a":`, 2*maxDepth) + "1" + strings.Repeat("}", 2*maxDepth)},
	} {
		d := &Decoder{}
		for range 4 {
			shared(t, d, []byte(c.data))
		}
	}
}

// TestSharedParts: equal parts of read-only objects are shared while the table grows. A mutable object shares none.
func TestSharedParts(t *testing.T) {
	t.Parallel()
	d := &Decoder{}
	part := func(o map[string]any) uintptr { return reflect.ValueOf(o["spec"].(map[string]any)["probe"]).Pointer() }
	// A part of the probe could have the place of the probe, which then is never decoded twice in a row at its place.
	probe := `{"path":"/ready","port":8080}`
	data := func(i int) []byte { return fmt.Appendf(nil, `{"spec":{"n":[%d],"probe":%s}}`, i, probe) }
	var last uintptr
	for i := range 2 * growAfter * minPlaces {
		now := part(shared(t, d, data(i)))
		if i > growAfter*minPlaces && now != last {
			t.Fatalf("object %d does not share the probe", i)
		}
		last = now
	}
	if n := len(d.trees.table()); n <= minPlaces {
		t.Errorf("the table has %d places", n)
	}
	own, err := d.Unmarshal(data(0))
	if err != nil || part(own) == last {
		t.Errorf("a mutable object has a shared part (%v)", err)
	}
}

func TestSharedPods(t *testing.T) {
	t.Parallel()
	d, pods := &Decoder{}, corpus.NewPods(3, 5)
	for i := range 300 {
		shared(t, d, pods.JSON(i, true))
	}
}

func FuzzShared(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"c",{}]},"d":{"b":[1,"c",{}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &Decoder{}
		for range 3 {
			var want map[string]any
			wantErr := kjson.UnmarshalCaseSensitivePreserveInts(slices.Clone(data), &want)
			got, err := d.UnmarshalShared(slices.Clone(data))
			if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(want, got) {
				t.Fatalf("%v, %v; want %v, %v", got, err, want, wantErr)
			}
		}
	})
}
