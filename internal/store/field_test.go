package store_test

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestFieldsOfOwnWrites covers the field selectors that the store can evaluate on an own write. client/e2e compares the
// results with those of kube-apiserver.
func TestFieldsOfOwnWrites(t *testing.T) {
	t.Parallel()
	widget := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	colour := map[string]store.FieldValue{"spec.colour": store.FieldPath(".spec.colour")}
	for _, tc := range []struct {
		reason   string
		kind     schema.GroupVersionKind
		fields   map[string]store.FieldValue
		selector string
		object   string // members after metadata
		want     store.PutResult
	}{
		{"the name of any kind", widget, nil, "metadata.name=a", ``, store.Overlaid},
		{"the namespace of any kind", widget, nil, "metadata.namespace!=ns", ``, store.OutOfScope},
		{
			"a field of a kind without a known function", widget, nil, "spec.colour=red", `,"spec":{"colour":"red"}`,
			store.NeedsBarrier,
		},
		{"a known field", widget, colour, "spec.colour=red", `,"spec":{"colour":"red"}`, store.Overlaid},
		{"a known field, other value", widget, colour, "spec.colour=red", `,"spec":{"colour":"blue"}`, store.OutOfScope},
		{"a missing field is empty", widget, colour, "spec.colour=", ``, store.Overlaid},
		{"a null field is empty", widget, colour, "spec.colour=", `,"spec":{"colour":null}`, store.Overlaid},
		{"another type on the path", widget, colour, "spec.colour=", `,"spec":["colour"]`, store.Overlaid},
		{
			"a known and an unknown field", widget, colour, "spec.colour=red,spec.size=3", `,"spec":{"colour":"red"}`,
			store.NeedsBarrier,
		},
		{
			"a function that panics", widget,
			map[string]store.FieldValue{"x": func(map[string]any) string { panic("x") }},
			"x=1", ``,
			store.NeedsBarrier,
		},
		{"no function", widget, map[string]store.FieldValue{"x": nil}, "x=1", ``, store.NeedsBarrier},
		{
			"a number", widget,
			map[string]store.FieldValue{"n": store.FieldPath("n")},
			"n=12345678901", `,"n":12345678901`,
			store.Overlaid,
		},
		{"a truth", widget, map[string]store.FieldValue{"b": store.FieldPath("b")}, "b=true", `,"b":true`, store.Overlaid},
		{
			"the user's function before the built-in one", corev1.SchemeGroupVersion.WithKind("Secret"),
			map[string]store.FieldValue{"type": func(map[string]any) string { return "mine" }},
			"type=mine", `,"type":"Opaque"`,
			store.Overlaid,
		},
		{
			"of another group of the same kind",
			schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Secret"},
			nil,
			"type=Opaque", `,"type":"Opaque"`, store.NeedsBarrier,
		},
		{"a selector that cannot be read", widget, nil, "a=b=", ``, store.NeedsBarrier},
	} {
		for _, content := range []store.Content{{}, {Metadata: true}} {
			t.Run(fmt.Sprint(tc.reason, content.Metadata), func(t *testing.T) {
				s := newStore(t, store.Options{Kind: tc.kind, FieldSelector: tc.selector, Fields: tc.fields, Content: content})
				list(t, s.Sink(""), 5)
				x := obj("a", "u1", 9)
				x.more = tc.object
				if got := put(t, s, x); got != tc.want {
					t.Errorf("%v, want %v", got, tc.want)
				}
				w := s.BeginWrite(x.key(), store.WriteContext{})
				x.version = 10
				if got, err := w.Done(source.JSON, x.json()); err != nil || got != tc.want {
					t.Errorf("%v, %v, want %v", got, err, tc.want)
				}
			})
		}
	}
}

// Fields of a protobuf object are read by the type of the Scheme. Without a type the server is asked.
func TestFieldsOfProtobuf(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u", ResourceVersion: "9"}}
	pod.Spec.NodeName = "n1"
	raw, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string]store.PutResult{
		"spec.nodeName=n1": store.Overlaid, "spec.nodeName=n2": store.OutOfScope, "spec.hostNetwork=false": store.Overlaid,
	} {
		opt := store.Options{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Scheme: scheme.Scheme, FieldSelector: selector}
		for enc, raw := range map[source.Encoding][]byte{source.Protobuf: raw, source.JSON: text} {
			s := newStore(t, opt)
			list(t, s.Sink(""), 5)
			if got, err := s.Put(enc, raw); err != nil || got != want {
				t.Errorf("%s in %v: %v, %v, want %v", selector, enc, got, err, want)
			}
		}
		opt.Scheme = nil
		s := newStore(t, opt)
		list(t, s.Sink(""), 5)
		if got, err := s.Put(source.Protobuf, raw); err != nil || got != store.NeedsBarrier {
			t.Errorf("%s without a Scheme: %v, %v", selector, got, err)
		}
	}
}

// A write that changes a selected field enters or leaves the selection.
func TestFieldSelectorsOfOwnWrites(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Kind: corev1.SchemeGroupVersion.WithKind("Pod"), FieldSelector: "status.phase=Running"})
	sink := s.Sink("")
	list(t, sink, 5)
	x := obj("a", "u1", 0)
	for i, phase := range []string{"Pending", "Running", "Failed", "Running", "Succeeded"} {
		x.version, x.more = 10+i, fmt.Sprintf(`,"status":{"phase":%q}`, phase)
		put(t, s, x)
		if _, ok := s.Get(x.key()); ok != (phase == "Running") {
			t.Errorf("%s: the object exists: %v", phase, ok)
		}
	}
	s.SetSelectors(source.Selectors{Field: "status.phase=Succeeded"})
	if !s.Decides() {
		t.Error("a store with other selectors cannot decide")
	}
	x.version++
	if got := put(t, s, x); got != store.Overlaid {
		t.Errorf("with other selectors: %v", got)
	}
	s.SetSelectors(source.Selectors{Field: "status.podIPs=1"})
	if s.Decides() {
		t.Error("a field that the server does not evaluate has a result")
	}
}
