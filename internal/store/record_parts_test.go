package store

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/source"
)

// decoderOf returns a decoder of pods that no record uses.
func decoderOf(change func(*decoder)) *decoder {
	d := &decoder{
		kind: corev1.SchemeGroupVersion.WithKind("Pod"), scheme: scheme.Scheme, shares: true,
		mayRefuse: func(any) bool { return false },
	}
	change(d)
	return d
}

// encodedPod returns a pod in an encoding.
func encodedPod(t *testing.T, enc source.Encoding, name string) encoded {
	t.Helper()
	if enc == source.JSON {
		return encoded{enc, fmt.Appendf(nil, `{"metadata":{"name":%q,"labels":{"app":"web"}}}`, name)}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}}}
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return encoded{enc, raw}
}

// TestDecoderAlone: which types an object can be decoded into depends on its encoding, its kind and the Scheme.
func TestDecoderAlone(t *testing.T) {
	t.Parallel()
	type named struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
	}
	same := func(*decoder) {}
	noScheme := func(d *decoder) { d.scheme = nil }
	metadata := func(d *decoder) { d.metadata = true }
	for reason, c := range map[string]struct {
		change func(*decoder)
		enc    source.Encoding
		into   any
		shared bool  // it can be decoded for all readers
		own    bool  // it can be decoded for one reader
		err    error // if any
	}{
		"a type of the kind":                   {same, source.JSON, &corev1.Pod{}, true, true, nil},
		"its protobuf":                         {same, source.Protobuf, &corev1.Pod{}, true, true, nil},
		"a type of another kind":               {same, source.JSON, &corev1.Secret{}, false, false, nil},
		"any type from JSON":                   {same, source.JSON, &named{}, true, true, nil},
		"any type from protobuf by the Scheme": {same, source.Protobuf, &named{}, false, true, errProtobuf},
		"there is no Scheme":                   {noScheme, source.Protobuf, &named{}, false, false, errProtobuf},
		"no type":                              {same, source.JSON, &unstructured.Unstructured{}, true, true, nil},
		"no type from protobuf":                {same, source.Protobuf, &unstructured.Unstructured{}, true, true, nil},
		"no type and no Scheme": {
			noScheme, source.Protobuf, &unstructured.Unstructured{}, false, false, errProtobuf,
		},
		"metadata": {metadata, source.Protobuf, &metav1.PartialObjectMetadata{}, true, true, nil},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			d, e := decoderOf(c.change), encodedPod(t, c.enc, "web-0")
			typ := reflect.TypeOf(c.into).Elem()
			shared, own := reflect.New(typ).Interface(), reflect.New(typ).Interface()
			expect := func(who string, err error, ok bool) {
				if (err == nil) != ok || err != nil && c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("for %s: %v", who, err)
				}
			}
			expect("all readers", d.decodeShared(shared, e, decodedForm{}), c.shared)
			expect("one reader", d.decodeOwn(own, e), c.own)
			for decoded, o := range map[any]bool{shared: c.shared, own: c.own} {
				if text := fmt.Sprintf("%+v", decoded); o && !strings.Contains(text, "web-0") {
					t.Errorf("decoded %s", text)
				}
			}
			if d.willDecode(e, d.targetOf(typ)) && !c.shared {
				t.Error("a type that the object cannot be decoded into is promised")
			}
		})
	}
}

// TestDecoderPromises: a type is promised from the bytes alone, unless readers may be refused.
func TestDecoderPromises(t *testing.T) {
	t.Parallel()
	refuse := false
	d := decoderOf(func(d *decoder) { d.mayRefuse = func(any) bool { return refuse } })
	e := encodedPod(t, source.JSON, "web-0")
	if !d.willDecode(e, d.targetOf(reflect.TypeFor[corev1.Pod]())) {
		t.Error("a pod is not promised as a pod")
	}
	wrong := encoded{source.JSON, []byte(`{"metadata":{"name":7}}`)}
	if d.willDecode(wrong, d.targetOf(reflect.TypeFor[corev1.Pod]())) {
		t.Error("an object with a wrong type of a field is promised")
	}
	refuse = true
	if d.willDecode(e, d.targetOf(reflect.TypeFor[metav1.PartialObjectMetadata]())) {
		t.Error("a type that may be refused is promised")
	}
}

// TestDecoderReportsFieldsThatATypeLacks: protobuf with an unknown field is not all that the type has.
func TestDecoderReportsFieldsThatATypeLacks(t *testing.T) {
	t.Parallel()
	d, e := decoderOf(func(*decoder) {}), encodedPod(t, source.Protobuf, "web-0")
	if !d.typeHasAll(e) {
		t.Error("the type lacks a field")
	}
	e.raw = append(e.raw, 15<<3|2, 1, 'x') // field 15
	if d.typeHasAll(e) {
		t.Error("the type has a field that it does not know")
	}
}

// TestFormsAlone: a record has one form of each type, which holds its object until it is weakened.
func TestFormsAlone(t *testing.T) {
	t.Parallel()
	var f forms
	pod, config := reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.ConfigMap]()
	one, other := &corev1.Pod{}, &corev1.ConfigMap{}
	v := newForm(pod, one)
	f.add(v)
	f.add(newForm(config, other))
	if f.held(pod) == nil || f.value(pod) != any(one) || f.value(config) != any(other) || !f.Shares(one) ||
		f.Shares(&corev1.Pod{}) || f.value(reflect.TypeFor[corev1.Secret]()) != nil {
		t.Errorf("pod %v, config %v", f.value(pod), f.value(config))
	}
	f.weaken(f.held(pod))
	if f.held(pod) != nil || f.value(pod) != any(one) || f.held(config) == nil {
		t.Error("an object that is still used is gone, or is held")
	}
	again := &corev1.Pod{}
	f.add(newForm(pod, again))
	if f.value(pod) != any(again) || f.Shares(one) || !f.Shares(other) {
		t.Error("the form of the type is not replaced")
	}
	runtime.KeepAlive(one)
}

// TestHotSetAlone: decoded objects are held up to the limit, and the least recently used ones go first. A failed
// decoding leaves no form.
func TestHotSetAlone(t *testing.T) {
	t.Parallel()
	p := newParts(t)
	h, m := &hotSet{}, &mutations{logger: slog.New(slog.DiscardHandler)}
	const size = 100
	h.init(2*size*decodedFactor, m)
	typ := reflect.TypeFor[corev1.Pod]()
	decoded := 0
	read := func(r *Record, fails error) any {
		t.Helper()
		o, err := h.load(r, typ, func() (any, int, error) {
			if decoded++; fails != nil {
				return nil, 0, fails
			}
			return &corev1.Pod{}, size, nil
		})
		if !errors.Is(err, fails) {
			t.Errorf("error %v, want %v", err, fails)
		}
		return o
	}
	a, b, c := p.record(t, "u", "1"), p.record(t, "u", "2"), p.record(t, "u", "3")
	if read(a, errNoName); a.forms.list() != nil || len(h.decoding) > 0 {
		t.Error("a failed decoding leaves a form")
	}
	first := read(a, nil)
	read(b, nil)
	if read(a, nil) != first || decoded != 3 {
		t.Errorf("decoded %d times", decoded)
	}
	a.use(a.forms.held(typ))
	read(c, nil)
	if a.forms.held(typ) == nil || b.forms.held(typ) != nil || c.forms.held(typ) == nil || h.held.bytes != h.held.limit {
		t.Errorf("%d bytes are held; the object that was not used is held: %v", h.held.bytes, b.forms.held(typ) != nil)
	}
	if read(a, nil) != first {
		t.Error("the object is decoded again while it is used")
	}
}

// TestMutationsAlone: a changed object is reported once, with the reader that had it, and an unchanged one never.
func TestMutationsAlone(t *testing.T) {
	t.Parallel()
	var reported []string
	m := &mutations{enabled: true, report: func(k Key, err error) {
		reported = append(reported, fmt.Sprint(k, ": ", err))
	}}
	of := newParts(t).record(t, "u", "5")
	pod := &corev1.Pod{}
	v := newForm(reflect.TypeFor[corev1.Pod](), pod)
	v.check = m.check(pod)
	m.verify(&of.header, v, "")
	if len(reported) != 0 {
		t.Fatalf("reported %q", reported)
	}
	pod.Name = "changed"
	for range 2 {
		m.verify(&of.header, v, "reader")
	}
	want := "a/x: a reader changed a shared object of type *v1.Pod when reader had it: copy it first"
	if len(reported) != 1 || reported[0] != want || m.count.Load() != 1 {
		t.Errorf("reported %q, want %q", reported, want)
	}
	if (&mutations{}).check(pod) != nil {
		t.Error("an object is checked although mutations are not detected")
	}
}

// TestRelatives: each of many groups finds its last record, and never a record of another group.
func TestRelatives(t *testing.T) {
	t.Parallel()
	var s relatives
	record := func(group uint64) *Record {
		r := &Record{}
		r.shape = &shape{siblings: group}
		return r
	}
	if s.of(record(1)) != nil {
		t.Error("a relative before any record was added")
	}
	rnd := seed.Rand(1)
	const groups = relativeGroups / relativeWays
	found := 0
	for range groups {
		group := rnd.Uint64()
		s.add(record(group))
		last := record(group)
		s.add(last)
		if s.of(record(group)) != last {
			t.Fatal("the last record of a group is not found")
		}
		if r := s.of(record(group + relativeGroups)); r != nil { // has the same places
			t.Fatal("a record of another group")
		}
		for way := range uint64(relativeWays) { // others displace it
			s.add(record(group + (way+1)*relativeGroups))
		}
		if r := s.of(record(group)); r != nil && r != last {
			t.Fatal("a record of another group")
		} else if r != nil {
			found++
		}
	}
	if found == groups {
		t.Error("no group was displaced by four others with the same places")
	}
}
