package decodable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/untyped"
)

// decodes decodes data with the slow decoder.
func decodes(t reflect.Type, data []byte) error {
	return kjson.UnmarshalCaseSensitivePreserveInts(data, reflect.New(t).Interface())
}

var untypedType = reflect.TypeFor[map[string]any]()

// honest fails if takes accepts data that cannot be decoded.
func honest(t testing.TB, typ reflect.Type, takes Type, data []byte) (sure bool) {
	t.Helper()
	if sure = takes.Takes(data); !sure {
		return false
	}
	err := decodes(typ, data)
	if typ == untypedType && err == nil {
		_, err = new(untyped.Decoder).Unmarshal(data)
	}
	if err != nil {
		t.Fatalf("%v: accepted but not decodable: %s\n%v", typ, data, err)
	}
	return true
}

// odd is a type with many kinds of members.
type odd struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Bool      bool                         `json:"bool"`
	Small     int8                         `json:"small"`
	Medium    int16                        `json:"medium"`
	Int32     int32                        `json:"int32"`
	Int64     *int64                       `json:"int64"`
	Unsigned  uint32                       `json:"unsigned"`
	Float     float64                      `json:"float"`
	Narrow    float32                      `json:"narrow"`
	Bytes     []byte                       `json:"bytes"`
	Any       any                          `json:"any"`
	Quoted    int                          `json:"quoted,string"`
	Number    json.Number                  `json:"number"`
	Quantity  resource.Quantity            `json:"quantity"`
	Quantity2 *resource.Quantity           `json:"quantity2"`
	Time      metav1.Time                  `json:"time"`
	Micro     *metav1.MicroTime            `json:"micro"`
	Duration  metav1.Duration              `json:"duration"`
	Port      intstr.IntOrString           `json:"port"`
	Raw       runtime.RawExtension         `json:"raw"`
	Message   json.RawMessage              `json:"message"`
	Map       map[string][]byte            `json:"map"`
	Numbers   map[int]string               `json:"numbers"`
	Resources corev1.ResourceList          `json:"resources"`
	Lists     [][]int32                    `json:"lists"`
	Array     [2]bool                      `json:"array"`
	Self      *odd                         `json:"self"`
	More      map[corev1.ResourceName]*odd `json:"more"`
	Hidden    string                       `json:"-"`
	Std       time.Time                    `json:"std"`
	Stringer  fmt.Stringer                 `json:"stringer"`
}

// values are the JSON values that are tried for each member.
var values = []string{
	`null`, `true`, `false`, `0`, `-1`, `7`, `99`, `100`, `127`, `128`, `-128`, `9999`, `32768`, `999999999`,
	`2147483647`, `2147483648`,
	`999999999999999999`, `9223372036854775807`, `9223372036854775808`, `1.5`, `-0.0`, `1e3`, `1E400`, `1.0`,
	`4294967296`,
	strings.Repeat("9", 30), strings.Repeat("9", 39), strings.Repeat("9", 300), strings.Repeat("9", 310),
	`""`, `"a"`, `"ä"`, `"\u00e4"`, `"\ud800"`, "\"\xff\"", `"QUJD"`, `"QUI="`, `"QQ=="`, `"Q==="`, `"===="`,
	`"QQ="`, `"Q\nQ=="`, `"QUJ-"`, `"QUJDR"`,
	`"2026-11-22T10:00:00Z"`, `"2026-02-29T10:00:00Z"`, `"2024-02-29T10:00:00Z"`, `"2026-13-01T10:00:00Z"`,
	`"2026-11-00T10:00:00Z"`,
	`"2026-11-22T24:00:00Z"`, `"2026-11-22T10:00:00.123456Z"`, `"2026-11-22T10:00:00+01:00"`,
	`"2026-11-22t10:00:00Z"`, `"2026-11-2210:00:00ZZ"`,
	`"1m30s"`, `"1"`, `"1Gi"`, `"100m"`, `"1.5Gi"`, `".5"`, `"5."`, `"5.m"`, `"1e3"`, `"1Ki "`, `" 1Ki"`,
	`"-1"`, `"+1"`, `"1ki"`, `"1K"`,
	`"999999999999999E"`, `"9999999999999999999Ei"`, `"0.000000000001n"`, `"abc"`,
	`[]`, `[1]`, `["a"]`, `[null]`, `[[1,2],[3]]`, `[[1.5]]`, `[true,false]`, `[true]`, `[1,]`, `{}`, `{"a":1}`,
	`{"a":"QUJD"}`, `{"1":"a"}`, `{"cpu":"1"}`,
	`{"cpu":"x"}`, `{"small":1}`, `{"small":1000}`, `{"a":{"small":300}}`, `{"a":{"small":3}}`, `{"a":1e400}`,
	`{"a":[1e400]}`, `{"b":[{"c":1.25}]}`, `{"metadata":{"name":1}}`,
	`{"Small":1000}`, `{"sm\u0061ll":1000}`, `{`, `]`, `-`, `tru`, `"`, ` 1 `,
}

// TestEveryMember tries every member of a type with every value.
func TestEveryMember(t *testing.T) {
	t.Parallel()
	var c Checker
	typ := reflect.TypeFor[odd]()
	sure, right := 0, 0
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		for _, v := range append(values, `{"generation":"1"}`, `{"generation":1,"labels":{"a":"b"},"finalizers":["x"]}`) {
			data := []byte(`{"other":[{"deep":null}],"` + name + `":` + v + "}")
			if decodes(typ, data) == nil {
				right++
			}
			if honest(t, typ, c.Type(typ), data) {
				sure++
			}
			honest(t, untypedType, Object(), data)
		}
	}
	if sure < right/2 {
		t.Errorf("accepted only %d of %d decodable values", sure, right)
	}
}

// TestUsualObjectsAreDecodable: usual pods are accepted without a decoding and without allocations.
func TestUsualObjectsAreDecodable(t *testing.T) {
	var c Checker
	pods := corpus.NewPods(1, 50)
	typ := reflect.TypeFor[corev1.Pod]()
	pod, meta, object := c.Type(typ), c.Type(reflect.TypeFor[metav1.PartialObjectMetadata]()), Object()
	var raw []byte
	for i := range 200 {
		raw = pods.JSON(i, i%2 == 0)
		if !honest(t, typ, pod, raw) || !meta.Takes(raw) || !object.Takes(raw) {
			t.Fatalf("not accepted: %s", raw)
		}
	}
	if n := testing.AllocsPerRun(100, func() { pod.Takes(raw); meta.Takes(raw); object.Takes(raw) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}

func TestTypesThatNeedDecoding(t *testing.T) {
	t.Parallel()
	type embedded struct{ A int }
	for _, typ := range []reflect.Type{
		reflect.TypeFor[time.Time](), reflect.TypeFor[struct{ metav1.Time }](), reflect.TypeFor[struct{ embedded }](),
		reflect.TypeFor[struct{ *corev1.Pod }](), reflect.TypeFor[chan int](), reflect.TypeFor[struct {
			A int `json:"a b"`
		}](),
	} {
		if new(Checker).Type(typ).Takes([]byte(`{}`)) {
			t.Errorf("%v", typ)
		}
	}
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	for _, data := range []string{
		``, ` `, `null`, `1`, `[]`, `{}{}`, `{} x`, `{"a":}`, `{"a" 1}`, `{"a":1,}`, `{a:1}`, `{"a":1`, deep,
	} {
		if Object().Takes([]byte(data)) {
			t.Errorf("%s", data)
		}
	}
	twice := reflect.TypeFor[struct {
		A int
		B int `json:"A"`
	}]()
	if c := new(Checker).Type(twice); c.Takes([]byte(`{"A":1}`)) || !c.Takes([]byte(`{"B":"x"}`)) {
		t.Error("a member that matches two fields is accepted")
	}
}

// TestEveryKind generates objects of all built-in types and damages them.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	var c Checker
	seed.Play(t, 4, func(t *testing.T, s uint64) {
		t.Parallel()
		for kind, typ := range scheme.Scheme.AllKnownTypes() {
			rnd, takes := seed.Rand(s, kind), c.Type(typ)
			for range 5 {
				data := generate(rnd, typ, 0)
				honest(t, typ, takes, data)
				honest(t, untypedType, Object(), data)
				honest(t, typ, takes, damage(rnd, data))
			}
		}
	})
}

// generate returns JSON that mostly fits a type.
func generate(rnd *rand.Rand, t reflect.Type, depth int) []byte {
	if depth > 6 || rnd.IntN(60) == 0 {
		return []byte(values[rnd.IntN(len(values)-8)]) // the last ones are not JSON
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return []byte(`"2026-11-22T10:00:00Z"`)
	case t == reflect.TypeFor[metav1.MicroTime]():
		return []byte(`"2026-11-22T10:00:00.000001Z"`)
	case t == reflect.TypeFor[resource.Quantity]():
		return []byte(`"100m"`)
	case t == reflect.TypeFor[intstr.IntOrString]():
		return []byte(`80`)
	}
	switch t.Kind() {
	case reflect.Bool:
		return []byte(`true`)
	case reflect.String:
		return []byte(`"text"`)
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Float64:
		return []byte(`12`)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return []byte(`"QUJD"`)
		}
		return slices.Concat([]byte(`[`), generate(rnd, t.Elem(), depth+1), []byte(`]`))
	case reflect.Map:
		return slices.Concat([]byte(`{"key":`), generate(rnd, t.Elem(), depth+1), []byte(`}`))
	case reflect.Struct:
		var out bytes.Buffer
		out.WriteByte('{')
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || rnd.IntN(3) > 0 {
				continue
			}
			if name == "" {
				name = f.Name
			}
			if out.Len() > 1 {
				out.WriteByte(',')
			}
			fmt.Fprintf(&out, "%q:%s", name, generate(rnd, f.Type, depth+1))
		}
		out.WriteByte('}')
		return out.Bytes()
	}
	return []byte(`{}`)
}

func damage(rnd *rand.Rand, b []byte) []byte {
	b = slices.Clone(b)
	if len(b) == 0 {
		return b
	}
	switch at := rnd.IntN(len(b)); rnd.IntN(3) {
	case 0:
		return b[:at]
	case 1:
		b[at] ^= 1 << rnd.IntN(8)
	default:
		return slices.Insert(b, at, `"{}[]:,0x`[rnd.IntN(9)])
	}
	return b
}

func FuzzTakes(f *testing.F) {
	for _, v := range values {
		f.Add([]byte(`{"metadata":{"name":"a"},"any":` + v + `}`))
	}
	f.Add([]byte(`{"quantity":"1Gi","time":"2026-11-22T10:00:00Z","duration":"1s","port":80,"bytes":"QUJD"}`))
	f.Add([]byte(`{"micro":"2026-11-22T10:00:00.000001Z","spec":{"containers":[{"name":"a","tty":true}]}}`))
	var c Checker
	types := []reflect.Type{reflect.TypeFor[odd](), reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.Secret]()}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, typ := range types {
			honest(t, typ, c.Type(typ), data)
		}
		honest(t, untypedType, Object(), data)
	})
}

func BenchmarkTakes(b *testing.B) {
	raw := corpus.NewPods(1, 50).JSON(1, false)
	var c Checker
	for name, takes := range map[string]Type{"pod": c.Type(reflect.TypeFor[corev1.Pod]()), "object": Object()} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if !takes.Takes(raw) {
					b.Fatal("not decodable")
				}
			}
		})
	}
}
