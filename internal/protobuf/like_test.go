package protobuf

import (
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// alike decodes data beside another message of the type. The result must not depend on the other message, which must
// not change.
func alike(t testing.TB, d *Decoder, o Message, data, other []byte) {
	t.Helper()
	typ := reflect.TypeOf(o).Elem()
	trusting(d, o)
	like := reflect.New(typ)
	if like.Interface().(Message).Unmarshal(slices.Clone(other)) != nil {
		return
	}
	want, got := reflect.New(typ), reflect.New(typ)
	wantErr := want.Interface().(Message).Unmarshal(slices.Clone(data))
	given := slices.Clone(data)
	gotErr := d.UnmarshalLike(given, got.Interface().(Message), other, like.Interface().(Message))
	for i := range given {
		given[i] = 0xff // the result must not refer to the input
	}
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("%v: error %v, want %v, of %x beside %x", typ, gotErr, wantErr, data, other)
	}
	if !reflect.DeepEqual(want.Interface(), got.Interface()) {
		t.Fatalf("%v differs of %x beside %x:\n%s", typ, data, other, cmp.Diff(want.Interface(), got.Interface()))
	}
	before := reflect.New(typ)
	_ = before.Interface().(Message).Unmarshal(slices.Clone(other))
	if !reflect.DeepEqual(before.Interface(), like.Interface()) {
		t.Fatalf("%v: decoding %x has changed the message of %x", typ, data, other)
	}
}

// TestLikeEveryKind decodes pairs of random messages of every built-in type. Pairs differ completely, differ in a part,
// are damaged, or are concatenated.
func TestLikeEveryKind(t *testing.T) {
	t.Parallel()
	all, d := kinds(), &Decoder{}
	seed.Play(t, 4, func(t *testing.T, s uint64) {
		t.Parallel()
		rnd := seed.Rand(s)
		for _, o := range all {
			a, b := encodeRandom(t, rnd, o), encodeRandom(t, rnd, o)
			changed := reflect.New(reflect.TypeOf(o).Elem())
			if err := changed.Interface().(Message).Unmarshal(a); err != nil {
				t.Fatal(err)
			}
			if at := changed.Elem().Field(rnd.IntN(changed.Elem().NumField())); at.CanSet() {
				fill(rnd, at, 3)
			}
			c, err := changed.Interface().(full).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			for _, pair := range [][2][]byte{
				{a, a},
				{a, b},
				{a, c},
				{c, a},
				{a, nil},
				{nil, a},
				{slices.Concat(a, b), a},
				{a, slices.Concat(a, b)},
				{damage(rnd, a), a},
				{a, damage(rnd, a)},
				{damage(rnd, c), a},
			} {
				alike(t, d, o, pair[0], pair[1])
			}
		}
	})
}

func FuzzLike(f *testing.F) {
	a, b := pods(2)[0], pods(2)[1]
	f.Add(a, b)
	f.Add(a, a)
	d := &Decoder{}
	f.Fuzz(func(t *testing.T, data, other []byte) { alike(t, d, &corev1.Pod{}, data, other) })
}

// TestLikeShares: two versions of a pod share their equal parts.
func TestLikeShares(t *testing.T) {
	d := &Decoder{}
	trusting(d, &corev1.Pod{})
	was := pods(1)[0]
	var prior corev1.Pod
	if err := d.Unmarshal(was, &prior); err != nil {
		t.Fatal(err)
	}
	next := prior.DeepCopy()
	next.ResourceVersion, next.Status.Message = "next", "another one"
	is, err := next.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Pod
	decode := func() {
		got = corev1.Pod{}
		if err := d.UnmarshalLike(is, &got, was, &prior); err != nil {
			t.Fatal(err)
		}
	}
	decode()
	if !reflect.DeepEqual(&got, next) {
		t.Fatal(cmp.Diff(next, &got))
	}
	if &got.Spec.Containers[0] != &prior.Spec.Containers[0] {
		t.Error("an equal part is not shared")
	}
	if got.Status.Message == prior.Status.Message || got.ResourceVersion == prior.ResourceVersion {
		t.Error("a different part is shared")
	}
	if n := testing.AllocsPerRun(100, decode); n > 5 {
		t.Errorf("%v allocations for two strings", n)
	}
}
