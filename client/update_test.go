package client

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/client/internal/content"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// A protobuf decoder skips the fields of a newer server, so an update would silently remove them.
func TestUnknownFieldsInProtobuf(t *testing.T) {
	t.Parallel()
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	st := store.New(store.Options{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: gvk,
		Scheme: scheme.Scheme, Namespaced: true,
	})
	defer st.Close()
	st.Sink("")
	k := &kind{gvk: gvk}
	for _, tc := range []struct {
		reason string
		more   []byte // appended to the message
		known  bool
	}{
		{"no unknown field", nil, true},
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
			t.Fatalf("%s: the object is not in the store", tc.reason)
		}
		is, err := content.Of(cm)
		if err != nil {
			t.Fatal(err)
		}
		if what, err := unknownField(r, is, "", k, scheme.Scheme); err != nil || (what == "") != tc.known {
			t.Errorf("%s: unknown field %q, %v", tc.reason, what, err)
		}
	}
}
