package untyped

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// both decodes data with both decoders, whose results must be equal.
func both(t testing.TB, d *Decoder, data []byte) {
	t.Helper()
	var want map[string]any
	wantErr := kjson.UnmarshalCaseSensitivePreserveInts(slices.Clone(data), &want)
	given := slices.Clone(data)
	got, err := d.Unmarshal(given)
	for i := range given {
		given[i] = 'x' // the result must not refer to the input
	}
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("error %v, want %v, of %q", err, wantErr, data)
	}
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("differs of %q:\n%s", data, cmp.Diff(want, got))
	}
}

// fast reports whether the object is decoded without the fallback decoder.
func fast(d *Decoder, data []byte) bool {
	dec := decoding{words: &d.words, data: data}
	dec.skip()
	_, err := dec.object(0, 0)
	dec.skip()
	return err == nil && dec.at == len(data)
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + `1` + strings.Repeat(`}`, n) }
	for _, c := range []struct {
		reason, data string
		fast         bool
	}{
		{"empty", `{}`, true},
		{"white space everywhere", " {\t\"a\" :\n[ 1 , 2 ] , \"b\" : { } }\r\n", true},
		{"literals", `{"a":true,"b":false,"c":null,"d":[],"e":[null]}`, true},
		{"integers", `{"a":0,"b":-1,"c":123456789012345678,"d":-0}`, true},
		{"the largest integers", `{"a":9223372036854775807,"b":-9223372036854775808,"c":9223372036854775808}`, false},
		{"fractions", `{"a":0.5,"b":-12.25,"c":1.0}`, true},
		{"exponents", `{"a":1e3,"b":1.5E-2,"c":1e400}`, false},
		{"not a number", `{"a":01}`, false},
		{"not a number", `{"a":-}`, false},
		{"not a number", `{"a":1.}`, false},
		{"not a number", `{"a":+1}`, false},
		{"a duplicate member: the last one counts", `{"a":{"b":1},"a":{"c":2}}`, true},
		{"an empty name", `{"":""}`, true},
		{"beyond ASCII", `{"ä":"日本 🚢"}`, true},
		{"escapes", `{"a\n\u00e4\ud83d\udea2":"\"\\\/\b\f\t"}`, true},
		{"half a surrogate", `{"a":"\ud83d"}`, true},
		{"an invalid escape", `{"a":"\x"}`, false},
		{"a short escape", `{"a":"\u12"}`, false},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", false},
		{"a control character", "{\"a\":\"\x01\"}", false},
		{"nested", deep(90), true},
		{"nested deeply", deep(500), false},
		{"too deeply", deep(20_000), false},
		{"trailing data", `{} {}`, false},
		{"a list", `[]`, false},
		{"null", `null`, false},
		{"nothing", ``, false},
		{"cut", `{"a":[1,`, false},
		{"no comma", `{"a":1 "b":2}`, false},
		{"a comma too many", `{"a":1,}`, false},
		{"a comma too many", `{"a":[1,]}`, false},
		{"no colon", `{"a" 1}`, false},
		{"a number for a name", `{1:1}`, false},
		{"half a literal", `{"a":tru}`, false},
		{"a literal with trailing letters", `{"a":nullx}`, false},
	} {
		d := &Decoder{}
		for range 3 { // again with the remembered words
			both(t, d, []byte(c.data))
		}
		if c.fast && !fast(d, []byte(c.data)) {
			t.Errorf("%s: %s needs the fallback decoder", c.reason, c.data)
		}
	}
}

// TestRandomly decodes random objects, intact and damaged.
func TestRandomly(t *testing.T) {
	t.Parallel()
	rnd := seed.New(t)
	d := &Decoder{}
	for range 3000 {
		data, err := json.Marshal(map[string]any{"o": random(rnd, 0)})
		if err != nil {
			t.Fatal(err)
		}
		both(t, d, data)
		at := rnd.IntN(len(data))
		both(t, d, data[:at])
		both(t, d, slices.Insert(slices.Clone(data), at, byte(rnd.Uint32())))
	}
}

func random(rnd *rand.Rand, depth int) any {
	kind := rnd.IntN(8)
	if depth > 6 {
		kind %= 6
	}
	switch kind {
	case 0:
		return nil
	case 1:
		return rnd.IntN(2) == 0
	case 2:
		return int64(rnd.Uint64()) >> rnd.IntN(64)
	case 3:
		return rnd.NormFloat64()
	case 4, 5:
		return strings.Repeat([]string{"a", "ä", "\n", "日", "\""}[rnd.IntN(5)], rnd.IntN(80))
	case 6:
		list := make([]any, rnd.IntN(5))
		for i := range list {
			list[i] = random(rnd, depth+1)
		}
		return list
	}
	o := map[string]any{}
	for range rnd.IntN(12) {
		o[strings.Repeat("k", rnd.IntN(70))] = random(rnd, depth+1)
	}
	return o
}

func pods(n int) (out [][]byte) {
	c := corpus.NewPods(1, 30)
	for i := range n {
		out = append(out, c.JSON(i, false))
	}
	return out
}

func TestConcurrently(t *testing.T) {
	t.Parallel()
	d := &Decoder{}
	all := pods(20)
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for _, raw := range all {
				both(t, d, raw)
			}
		})
	}
}

// TestNothingIsShared: a change of one decoded object does not affect another one.
func TestNothingIsShared(t *testing.T) {
	t.Parallel()
	d := &Decoder{}
	for range 4 {
		o, err := d.Unmarshal([]byte(`{"m":{"k":"v"},"l":["v"]}`))
		if err != nil || o["m"].(map[string]any)["k"] != "v" || o["l"].([]any)[0] != "v" {
			t.Fatalf("%v, %v", o, err)
		}
		o["m"].(map[string]any)["k"] = "changed"
		o["l"].([]any)[0] = "changed"
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"a":[1,-2.5,"\u00e4",null,true,{}]}`))
	d := &Decoder{}
	f.Fuzz(func(t *testing.T, data []byte) { both(t, d, data) })
}

func BenchmarkPod(b *testing.B) {
	raws := pods(1000)
	d := &Decoder{}
	for _, tc := range []struct {
		name      string
		unmarshal func([]byte) (map[string]any, error)
	}{
		{"sigs.k8s.io/json", func(raw []byte) (o map[string]any, err error) {
			err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &o)
			return o, err
		}},
		{"untyped", d.Unmarshal},
	} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := tc.unmarshal(raws[i%len(raws)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
