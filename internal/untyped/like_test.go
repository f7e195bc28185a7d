package untyped

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// alike decodes data beside another object. The result must not depend on the other object, which must not change.
func alike(t testing.TB, d *Decoder, data, other []byte) {
	t.Helper()
	var want, like, before map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(slices.Clone(other), &like) != nil {
		return
	}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(slices.Clone(other), &before)
	wantErr := kjson.UnmarshalCaseSensitivePreserveInts(slices.Clone(data), &want)
	given := slices.Clone(data)
	got, err := d.UnmarshalLike(given, other, like)
	for i := range given {
		given[i] = 'x' // the result must not refer to the input
	}
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("error %v, want %v, of %q beside %q", err, wantErr, data, other)
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("%q beside %q differs:\n%s", data, other, cmp.Diff(want, got))
	}
	if !reflect.DeepEqual(before, like) {
		t.Fatalf("decoding %q has changed the object of %q", data, other)
	}
}

func TestLike(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, data, other string }{
		{"the same", `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		{"white space", ` { "a" : {"b":1} , "c":[ 1 ] } `, "{\"a\":{\"b\":1}\n,\t\"c\":[ 1 ]\r}"},
		{"the last of two members counts", `{"a":1,"a":2}`, `{"a":2,"a":1}`},
		{"the last of two members counts in the other object", `{"a":1}`, `{"a":1,"a":2}`},
		{"another type", `{"a":{"b":1},"c":2}`, `{"a":2,"c":{"b":1}}`},
		{"a part of it", `{"a":{"b":{"c":1},"d":"x"}}`, `{"a":{"b":{"c":1},"d":"y"}}`},
		{"brackets and quotes in strings", `{"a":"}\"]","b":{"c":"\\"}}`, `{"a":"}\"]","b":{"c":"\\\""}}`},
		{"the other is empty", `{"a":1}`, `{}`},
		{"the object is empty", `{}`, `{"a":1}`},
		{"a member is missing", `{"a":{"x":1},"c":{"z":3}}`, `{"a":{"x":1},"b":{"y":2},"c":{"z":3}}`},
		{"a member is new", `{"a":{"x":1},"b":{"y":2},"c":{"z":3}}`, `{"a":{"x":1},"c":{"z":3}}`},
		{"another order", `{"c":{"z":3},"b":{"y":2},"a":{"x":1}}`, `{"a":{"x":1},"b":{"y":2},"c":{"z":3}}`},
		{"many members are missing", `{"z":{"a":1}}`, `{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"z":{"a":1}}`},
		{"a name twice in a part", `{"a":{"b":{"x":1}}}`, `{"a":{"b":{"x":1},"b":{"x":2}}}`},
		{"a name twice in an item", `{"a":[{"b":1,"c":1}]}`, `{"a":[{"b":1,"b":2,"c":2}]}`},
		{"an item is missing", `{"a":[{"x":1},{"z":3}]}`, `{"a":[{"x":1},{"y":2},{"z":3}]}`},
		{"an item is new", `{"a":[{"x":1},{"y":2},{"z":3}]}`, `{"a":[{"x":1},{"z":3}]}`},
		{"an item differs in a part", `{"a":[{"x":{"b":"c"},"y":["d",1]}]}`, `{"a":[{"x":{"b":"c"},"y":["d",2]}]}`},
		{"a list is empty", `{"a":[],"b":[1]}`, `{"a":[1],"b":[]}`},
		{"no name", `{"":1,"a":2}`, `{"":1,"b":2}`},
		{"numbers", `{"a":1,"b":12,"c":-1.5}`, `{"a":12,"b":1,"c":-1.25}`},
		{"null", `{"a":null}`, `{"a":null}`},
		{"the other has a null", `{"a":null}`, `{"b":1}`},
		{"the other is not an object", `{"a":1}`, `null`},
		{"names with escapes", `{"\u0061":{"b":1}}`, `{"a":{"b":1}}`},
		{"no value", `{"a":}`, `{"a":1}`},
		{"two values", `{"a":1 2}`, `{"a":1}`},
		{"cut", `{"a":{"b":1`, `{"a":{"b":1}}`},
		{"a literal with trailing letters", `{"a":nullx}`, `{"a":null}`},
		{"wrong brackets", `{"a":[1}}`, `{"a":[1]}`},
	} {
		d := &Decoder{}
		for range 3 {
			alike(t, d, []byte(c.data), []byte(c.other))
		}
	}
}

// TestLikeRandomly decodes random objects beside others that differ in one member, intact and damaged.
func TestLikeRandomly(t *testing.T) {
	t.Parallel()
	rnd := seed.New(t)
	d := &Decoder{}
	encode := func(o any) []byte {
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for range 2000 {
		o := map[string]any{
			"metadata": map[string]any{"a": random(rnd, 2), "b": random(rnd, 2)}, "spec": random(rnd, 1),
			"status": random(rnd, 1),
		}
		data := encode(o)
		if within, ok := o[[]string{"metadata", "spec", "status"}[rnd.IntN(3)]].(map[string]any); ok {
			within["b"] = random(rnd, 3)
		} else {
			o["spec"] = random(rnd, 1)
		}
		other := encode(o)
		alike(t, d, data, other)
		alike(t, d, data, encode(map[string]any{"metadata": o["spec"], "spec": o["metadata"], "status": random(rnd, 1)}))
		at := rnd.IntN(len(data))
		alike(t, d, data[:at], other)
		alike(t, d, slices.Insert(slices.Clone(data), at, byte(rnd.Uint32())), other)
		alike(t, d, other, slices.Insert(slices.Clone(data), at, byte(rnd.Uint32())))
	}
}

// An object whose data does not say its type is given one after it was decoded.
func TestLikeWithType(t *testing.T) {
	d := &Decoder{}
	for _, c := range []struct {
		other string
		share bool
	}{
		{`{"spec":{"a":1}}`, true},
		{`{"spec":{"a":2},"spec":{"a":1}}`, false},
		{`{"kind":"x","spec":{"a":1}}`, true},
	} {
		var like map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(c.other), &like); err != nil {
			t.Fatal(err)
		}
		like["apiVersion"], like["kind"] = "v1", "Pod"
		got, err := d.UnmarshalLike([]byte(`{"spec":{"a":1},"status":1}`), []byte(c.other), like)
		want := map[string]any{"spec": map[string]any{"a": int64(1)}, "status": int64(1)}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("beside %s: %v, error %v", c.other, got, err)
		}
		at := func(o map[string]any) uintptr { return reflect.ValueOf(o["spec"]).Pointer() }
		if shared := at(got) == at(like); shared != c.share {
			t.Errorf("beside %s: shared is %t", c.other, shared)
		}
	}
}

func FuzzLike(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"c"},"d":[1]}`), []byte(`{"a":{"b":"x"},"d":[1]}`))
	d := &Decoder{}
	f.Fuzz(func(t *testing.T, data, other []byte) { alike(t, d, data, other) })
}

// TestLikeShares: two versions of a pod share their equal parts.
func TestLikeShares(t *testing.T) {
	d := &Decoder{}
	pod := corpus.NewPods(1, 1).Next(0)
	was, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	pod.ResourceVersion, pod.Status.Message = "next", "another one"
	is, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	prior, err := d.Unmarshal(was)
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.UnmarshalLike(is, was, prior)
	if err != nil {
		t.Fatal(err)
	}
	at := func(o map[string]any) uintptr { return reflect.ValueOf(o["spec"]).Pointer() }
	if at(got) != at(prior) {
		t.Error("an equal part is not shared")
	}
	if reflect.DeepEqual(got["status"], prior["status"]) {
		t.Error("a different part is shared")
	}
}

func BenchmarkLike(b *testing.B) {
	d := &Decoder{}
	pod := corpus.NewPods(1, 1).Next(0)
	was, _ := json.Marshal(pod)
	pod.ResourceVersion = "next"
	is, _ := json.Marshal(pod)
	prior, err := d.Unmarshal(was)
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func() error{
		"alone":  func() error { _, err := d.Unmarshal(is); return err },
		"beside": func() error { _, err := d.UnmarshalLike(is, was, prior); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
