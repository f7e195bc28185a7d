package protobuf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/seed"
)

// full is what generated types implement.
type full interface {
	Message
	Marshal() ([]byte, error)
}

// kinds returns an empty object of each type in the scheme.
func kinds() (out []full) {
	seen := map[reflect.Type]bool{}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		if o, ok := reflect.New(t).Interface().(full); ok && !seen[t] {
			seen[t] = true
			out = append(out, o)
		}
	}
	slices.SortFunc(out, func(a, b full) int { return strings.Compare(fmt.Sprintf("%T", a), fmt.Sprintf("%T", b)) })
	return out
}

// trusting makes a decoder trust a type without comparing results itself.
func trusting(d *Decoder, o Message) *Decoder {
	d.of(reflect.TypeOf(o)).checked.Store(checks)
	return d
}

// both decodes data with the type's own decoder and with the Decoder, whose result must be equal.
func both(t testing.TB, d *Decoder, like Message, data []byte) {
	t.Helper()
	typ := reflect.TypeOf(like).Elem()
	want, got := reflect.New(typ), reflect.New(typ)
	wantErr := want.Interface().(Message).Unmarshal(slices.Clone(data))
	given := slices.Clone(data)
	sure := trusting(d, like).Decodes(given, reflect.TypeOf(like))
	gotErr := d.Unmarshal(given, got.Interface().(Message))
	if sure && gotErr != nil {
		t.Fatalf("%v: promised as decodable, but: %v, of %x", typ, gotErr, data)
	}
	for i := range given {
		given[i] = 0xff // the result must not refer to the input
	}
	if fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
		t.Fatalf("%v: error %v, want %v, of %x", typ, gotErr, wantErr, data)
	}
	if !reflect.DeepEqual(want.Interface(), got.Interface()) {
		t.Fatalf("%v differs of %x:\n%s", typ, data, cmp.Diff(want.Interface(), got.Interface()))
	}
}

// TestEveryKind fills every field of every built-in type with random values, then damages the encoded messages.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	all, d := kinds(), &Decoder{}
	if len(all) < 300 {
		t.Fatalf("only %d kinds in the scheme", len(all))
	}
	seed.Play(t, 6, func(t *testing.T, s uint64) {
		t.Parallel()
		rnd := seed.Rand(s)
		for _, o := range all {
			a, b := encodeRandom(t, rnd, o), encodeRandom(t, rnd, o)
			both(t, d, o, a)
			both(t, d, o, slices.Concat(a, b)) // one after the other
			for range 4 {
				both(t, d, o, damage(rnd, a))
			}
		}
	})
}

func encodeRandom(t testing.TB, rnd *rand.Rand, like full) []byte {
	t.Helper()
	v := reflect.New(reflect.TypeOf(like).Elem())
	fill(rnd, v.Elem(), 0)
	b, err := v.Interface().(full).Marshal()
	if err != nil {
		t.Fatalf("cannot encode %T: %v", like, err)
	}
	return b
}

// fill sets about half of the fields of v.
func fill(rnd *rand.Rand, v reflect.Value, depth int) {
	switch o := v.Addr().Interface().(type) {
	case *resource.Quantity:
		*o = resource.MustParse([]string{"0", "100m", "1.5Gi", "12E", "123456789012345678901234567890", "250n"}[rnd.IntN(6)])
		return
	case *metav1.Time:
		*o = metav1.Unix(rnd.Int64N(1<<33), 0)
		return
	case *metav1.MicroTime:
		*o = metav1.NewMicroTime(time.Unix(rnd.Int64N(1<<33), 1000))
		return
	case *runtime.RawExtension:
		o.Raw = []byte(`{}`)
		return
	}
	size := rnd.IntN(4)
	if depth > 8 {
		size = 0
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Repeat("ä"+fmt.Sprint(rnd.IntN(1000)), rnd.IntN(3)*rnd.IntN(40)))
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rnd.Uint64()) >> rnd.IntN(64))
	case reflect.Uint32, reflect.Uint64, reflect.Uint8:
		v.SetUint(rnd.Uint64() >> rnd.IntN(64))
	case reflect.Pointer:
		if size > 1 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rnd, v.Elem(), depth+1)
		}
	case reflect.Slice:
		if size > 0 {
			v.Set(reflect.MakeSlice(v.Type(), size, size))
			for i := range size {
				fill(rnd, v.Index(i), depth+1)
			}
		}
	case reflect.Map:
		if size > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range size {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(rnd, key, depth+1)
				fill(rnd, value, depth+1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(rnd, v.Field(i), depth+1)
			}
		}
	}
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
		return slices.Insert(b, at, byte(rnd.Uint32()))
	}
	return b
}

func pods(n int) (out [][]byte) {
	c := corpus.NewPods(1, 30)
	for i := range n {
		p := c.Next(i)
		p.ManagedFields = nil
		b, err := p.Marshal()
		if err != nil {
			panic(err)
		}
		out = append(out, b)
	}
	return out
}

func FuzzUnmarshal(f *testing.F) {
	likes := []full{
		&corev1.Pod{}, &appsv1.Deployment{}, &corev1.Secret{}, &metav1.ObjectMeta{},
		&corev1.ResourceRequirements{},
	}
	yes := true
	for _, o := range []full{ // small ones: large ones take minutes to minimize
		&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "a", Env: []corev1.EnvVar{{Name: "b", Value: "c"}}},
		}, HostUsers: &yes}},
		&appsv1.Deployment{Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		}},
		&corev1.Secret{Data: map[string][]byte{"a": []byte("b")}},
		&metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.Unix(1, 0), Finalizers: []string{"a", "b"}},
		&corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
	} {
		b, err := o.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	d := &Decoder{}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, o := range likes {
			both(t, d, o, data)
		}
	})
}

// FuzzEveryKind compares the decoders of the built-in type with the number kind.
func FuzzEveryKind(f *testing.F) {
	all, rnd := kinds(), rand.New(rand.NewPCG(1, 2)) // seeds are the same in each run
	for i, o := range all {
		small := encodeRandom(f, rnd, o)
		for range 20 { // large ones take minutes to minimize
			if other := encodeRandom(f, rnd, o); len(other) > 0 && (len(small) == 0 || len(other) < len(small)) {
				small = other
			}
		}
		f.Add(uint16(i), small)
	}
	d := &Decoder{}
	f.Fuzz(func(t *testing.T, kind uint16, data []byte) { both(t, d, all[int(kind)%len(all)], data) })
}

// TestTable: the decoder has a plan for common kinds, and allocates at most half as often as the type itself.
func TestTable(t *testing.T) {
	for _, o := range kinds() {
		switch typ := reflect.TypeOf(o); typ.Elem().Name() {
		case "Pod", "Node", "Service", "Deployment", "Secret", "ConfigMap", "Job", "Ingress", "EndpointSlice", "Lease",
			"Event":
			if new(Decoder).of(typ).plan == nil {
				t.Errorf("%v has no plan", typ)
			}
		}
	}
	d := &Decoder{}
	raw := pods(1)[0]
	var p corev1.Pod
	own := testing.AllocsPerRun(100, func() { p = corev1.Pod{}; _ = p.Unmarshal(raw) })
	trusting(d, &p)
	ours := testing.AllocsPerRun(100, func() { p = corev1.Pod{}; _ = d.Unmarshal(raw, &p) })
	if ours > own/2 {
		t.Errorf("%.0f allocations, %.0f by the type itself", ours, own)
	}
}

// TestDecodes: after enough correct results a type is trusted, and its messages are checked without allocations.
func TestDecodes(t *testing.T) {
	d := &Decoder{}
	typ := reflect.TypeFor[*corev1.Pod]()
	for i, raw := range pods(2 * checks) {
		if got := d.Decodes(raw, typ); got != (i >= checks) {
			t.Fatalf("%v for the pod after %d messages, want trust after %d", got, i, checks)
		}
		if err := d.Unmarshal(raw, new(corev1.Pod)); err != nil {
			t.Fatal(err)
		}
	}
	raw := pods(1)[0]
	if n := testing.AllocsPerRun(100, func() { d.Decodes(raw, typ) }); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
	var l liar
	for range 2 * checks {
		if d.Decodes([]byte("\x0a\x03abc"), reflect.TypeOf(&l)) {
			t.Fatal("a type with another encoding was trusted")
		}
		l = liar{}
		if err := d.Unmarshal([]byte("\x0a\x03abc"), &l); err != nil {
			t.Fatal(err)
		}
	}
}

// liar has a struct tag that its decoder ignores.
type liar struct {
	Name string `protobuf:"bytes,1,opt,name=name"`
}

func (l *liar) Unmarshal(b []byte) error {
	l.Name = string(bytes.ToUpper(b[2:]))
	return nil
}

func TestTypesOwnDecoderCounts(t *testing.T) {
	t.Parallel()
	d := &Decoder{}
	for range 2 * checks {
		var l liar
		if err := d.Unmarshal([]byte("\x0a\x03abc"), &l); err != nil || l.Name != "ABC" {
			t.Fatalf("%+v, %v", l, err)
		}
	}
}

func TestConcurrently(t *testing.T) {
	t.Parallel()
	d := &Decoder{}
	all := pods(20)
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for _, raw := range all {
				var want, got corev1.Pod
				if err := want.Unmarshal(raw); err != nil {
					t.Fatal(err)
				}
				if err := d.Unmarshal(raw, &got); err != nil || !reflect.DeepEqual(want, got) {
					t.Fatalf("%v\n%s", err, cmp.Diff(want, got))
				}
			}
		})
	}
}

func BenchmarkPod(b *testing.B) {
	raws := pods(1000)
	d := &Decoder{}
	for _, tc := range []struct {
		name      string
		unmarshal func([]byte, *corev1.Pod) error
	}{
		{"look ahead", func(raw []byte, _ *corev1.Pod) error {
			if !d.Decodes(raw, reflect.TypeFor[*corev1.Pod]()) {
				return d.Unmarshal(raw, new(corev1.Pod)) // before the type is trusted
			}
			return nil
		}},
		{"own", func(raw []byte, p *corev1.Pod) error { return p.Unmarshal(raw) }},
		{"table", func(raw []byte, p *corev1.Pod) error { return d.Unmarshal(raw, p) }},
	} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var p corev1.Pod
				if err := tc.unmarshal(raws[i%len(raws)], &p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkLike decodes pods beside another pod of their workload.
func BenchmarkLike(b *testing.B) {
	gen := corpus.NewPods(1, 1)
	raws, decoded := make([][]byte, 100), make([]corev1.Pod, 100)
	d := &Decoder{}
	trusting(d, &corev1.Pod{})
	for i := range raws {
		pod := gen.Next(i)
		raws[i], _ = pod.Marshal()
		if err := d.Unmarshal(raws[i], &decoded[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		var p corev1.Pod
		at, beside := i%len(raws), (i+1)%len(raws)
		if err := d.UnmarshalLike(raws[at], &p, raws[beside], &decoded[beside]); err != nil {
			b.Fatal(err)
		}
	}
}
