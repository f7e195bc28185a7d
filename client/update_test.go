package client

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A decoder of protobuf skips the fields of a newer server, which an update would remove without a word.
func TestFieldsThatAMessageDoesNotKnow(t *testing.T) {
	t.Parallel()
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	st := store.New(store.Options{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: gvk,
		Scheme: scheme.Scheme, Namespaced: true,
	})
	defer st.Close()
	st.Sink("")
	w := &writing{c: &Client{shared: &shared{}}, k: &kind{gvk: gvk}}
	w.c.kinds.scheme = scheme.Scheme
	for _, tc := range []struct {
		reason string
		more   []byte // appended to the message
		known  bool
	}{
		{"as it is", nil, true},
		{"a field of text", []byte{14<<3 | 2, 1, 'x'}, false},
		{"a number, which is zero", []byte{15 << 3, 0}, false},
	} {
		cm := &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "a", Name: tc.reason, UID: "u", ResourceVersion: "7", Labels: map[string]string{"b": "1", "a": "2"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: metav1.NewFieldsV1("{}")}},
			},
			Data: map[string]string{"z": "1", "a": "2"},
		}
		raw, err := cm.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.Put(source.Protobuf, append(raw, tc.more...)); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		r, ok := st.Get(KeyOf(cm))
		if !ok {
			t.Fatalf("%s: it is not in the store", tc.reason)
		}
		is, err := content(cm)
		if err != nil {
			t.Fatal(err)
		}
		if what, err := w.unknown(r, is); err != nil || (what == "") != tc.known {
			t.Errorf("%s: %q is not known, %v", tc.reason, what, err)
		}
	}
}

func TestLacking(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, stored, typed, want string
	}{
		{"the same", `{"a":1,"l":[{"b":"c"}],"t":true}`, `{"a":1,"l":[{"b":"c"}],"t":true}`, ""},
		{"more than there was", `{"a":1}`, `{"a":1,"b":{}}`, ""},
		{"a null says nothing", `{"a":null,"b":{"c":null}}`, `{"b":{}}`, ""},
		{"a field", `{"a":{"b":{"c":1}}}`, `{"a":{"b":{}}}`, "a.b.c"},
		{"a field of what is gone altogether", `{"a":{"b":{"c":1}}}`, `{}`, "a.b.c"},
		{"an empty map", `{"a":{"b":{}}}`, `{"a":{}}`, "a.b"},
		{"an empty status", `{"status":{}}`, `{}`, ""},
		{"an empty list", `{"a":[]}`, `{}`, "a"},
		{"an item", `{"a":[1,2]}`, `{"a":[1]}`, "a"},
		{"in an item", `{"a":[1,{"b":2}]}`, `{"a":[1,{}]}`, "a[1].b"},
		{"another type", `{"a":{"b":1}}`, `{"a":"b"}`, "a"},
		{"a false", `{"a":false}`, `{}`, "a"},
		{"another number", `{"a":9007199254740993}`, `{"a":9007199254740992}`, "a"},
		{"a number written otherwise", `{"a":1.0,"b":2}`, `{"a":1,"b":2.0}`, ""},
		{
			"a quantity, a duration and a time written otherwise", `{"q":"1000m","d":"60s","t":"2026-01-01T01:00:00+01:00"}`,
			`{"q":"1","d":"1m0s","t":"2026-01-01T00:00:00Z"}`, "",
		},
		{"a time that was cut", `{"t":"2026-01-01T00:00:00.5Z"}`, `{"t":"2026-01-01T00:00:00Z"}`, "t"},
		{"another text", `{"a":"1"}`, `{"a":"one"}`, "a"},
		{"a text for a number", `{"a":1}`, `{"a":"1"}`, "a"},
	} {
		stored, err := contentOf([]byte(tc.stored))
		if err != nil {
			t.Fatal(err)
		}
		typed, err := contentOf([]byte(tc.typed))
		if err != nil {
			t.Fatal(err)
		}
		if got := lacking(stored, typed, ""); got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
		}
	}
}
