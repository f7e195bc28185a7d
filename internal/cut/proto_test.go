package cut_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/internal/corpus"
	"github.com/fairlead-io/fairlead/internal/cut"
)

type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

func encoded(t *testing.T, m message) []byte {
	t.Helper()
	raw, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func pod(i int) *corev1.Pod {
	p := corpus.NewPods(7, 3).Next(i)
	p.Annotations["a.b/c"], p.Spec.NodeSelector = "secret", map[string]string{"x": "y", "z": "w"}
	managed := metav1.ManagedFieldsEntry{Manager: "m", FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)}
	p.ManagedFields = []metav1.ManagedFieldsEntry{managed, {Manager: "n"}}
	return p
}

// A protobuf object without the paths equals the same JSON object without them.
func TestAppendMessage(t *testing.T) {
	t.Parallel()
	secret := &corev1.Secret{Data: map[string][]byte{"a": []byte("b"), "c": []byte("d")}, Type: "Opaque"}
	secret.Name = "s"
	deployment := &appsv1.Deployment{}
	deployment.Spec.Template.Spec = pod(1).Spec
	deployment.Spec.Template.Labels = map[string]string{"a": "b"}
	deployment.Annotations = map[string]string{"a.b/c": "d"}
	for _, test := range []struct {
		from  message
		paths []string
		found int
	}{
		{secret, []string{"data"}, 1},
		{secret, []string{"data.a", "type"}, 2},
		{secret, []string{"data[none]", "stringData"}, 0},
		{deployment, []string{"spec.template", "metadata.annotations[a.b/c]"}, 2},
		{deployment, []string{
			"spec.template.metadata.labels.a", "spec.template.spec.containers",
			"spec.template.spec.volumes",
		}, 3},
		{pod(2), []string{"metadata.managedFields", "spec.nodeName", "status"}, 3},
		{pod(3), []string{"spec.nodeSelector[x]", "metadata.annotations", "spec.securityContext.runAsNonRoot"}, 3},
		{pod(4), []string{"metadata.creationTimestamp", "spec.overhead", "spec.tolerations"}, 2},
	} {
		typ := reflect.TypeOf(test.from).Elem()
		p := paths(t, test.paths...)
		m, err := p.Message(typ)
		if err != nil {
			t.Fatal(err)
		}
		raw := encoded(t, test.from)
		unknown := []byte{0xfa, 0x3e, 3, 'n', 'e', 'w'} // field 1007, of a newer server
		out, found, err := m.Append([]byte("before"), append(raw, unknown...))
		if err != nil || !strings.HasPrefix(string(out), "before") || !strings.HasSuffix(string(out), string(unknown)) {
			t.Fatalf("%v: %v", test.paths, err)
		}
		got, want := reflect.New(typ).Interface().(message), reflect.New(typ).Interface()
		if err := got.Unmarshal(out[len("before"):]); err != nil {
			t.Fatalf("%v: %v", test.paths, err)
		}
		asJSON, err := json.Marshal(test.from)
		if err != nil {
			t.Fatal(err)
		}
		asJSON, _, err = p.AppendJSON(nil, asJSON)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(asJSON, want); err != nil {
			t.Fatal(err)
		}
		if a, b := text(t, want), text(t, got); a != b {
			t.Errorf("%v of a %s (-want +got):\n%s", test.paths, typ, cmp.Diff(a, b))
		}
		n := 0
		for i := range p.Len() {
			if found.Has(i) {
				n++
			}
		}
		if n != test.found {
			t.Errorf("%v of a %s: %d paths were found, want %d", test.paths, typ, n, test.found)
		}
	}
}

func text(t *testing.T, o any) string {
	t.Helper()
	raw, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestMessageRefuses(t *testing.T) {
	t.Parallel()
	type resource struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			List []struct{ Secret string } `json:"list"`
		} `json:"spec"`
	}
	for _, test := range []struct {
		reason, path string
		typ          reflect.Type
		list         bool
	}{
		{"a list", "spec.containers.env", reflect.TypeFor[corev1.Pod](), true},
		{"a list of a type without protobuf", "spec.list.secret", reflect.TypeFor[resource](), true},
		{"a type without protobuf", "spec", reflect.TypeFor[resource](), false},
		{"a field that the type lacks", "spec.secret", reflect.TypeFor[corev1.Pod](), false},
		{"a field outside the message", "kind", reflect.TypeFor[corev1.Pod](), false},
		{"below a text", "spec.nodeName.x", reflect.TypeFor[corev1.Pod](), false},
		{"below a time", "metadata.creationTimestamp.Time", reflect.TypeFor[corev1.Pod](), false},
		{"an unstructured object", "spec", reflect.TypeFor[unstructured.Unstructured](), false},
	} {
		p := paths(t, test.path)
		if _, err := p.Message(test.typ); err == nil {
			t.Errorf("%s: no error", test.reason)
		}
		if err := p.Check(test.typ); errors.Is(err, cut.ErrList) != test.list || (err != nil) != test.list {
			t.Errorf("%s: the check returns %v", test.reason, err)
		}
	}
	m, err := paths(t, "metadata.annotations[x]").Message(reflect.TypeFor[corev1.Pod]())
	if err != nil {
		t.Fatal(err)
	}
	for _, raw := range [][]byte{{0x0a}, {0x0a, 5, 1}, {0x0a, 2, 0x62, 7}, {0xff}} {
		if out, _, err := m.Append(nil, raw); err == nil {
			t.Errorf("%x was cut to %x", raw, out)
		}
	}
}

// FuzzAppendMessage: malformed messages are errors, and the other results contain none of the paths.
func FuzzAppendMessage(f *testing.F) {
	for i := range 3 {
		raw, err := pod(i).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte{0x0a, 0})
	m, err := paths(f, "metadata.annotations[a.b/c]", "spec.nodeName", "status").Message(reflect.TypeFor[corev1.Pod]())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, _, err := m.Append(nil, raw)
		var was, is corev1.Pod
		if was.Unmarshal(raw) != nil {
			return
		}
		if err != nil {
			t.Fatalf("cannot cut %x: %v", raw, err)
		}
		if err := is.Unmarshal(out); err != nil {
			t.Fatalf("%x was cut to %x: %v", raw, out, err)
		}
		delete(was.Annotations, "a.b/c")
		was.Spec.NodeName, was.Status = "", corev1.PodStatus{}
		if !equality.Semantic.DeepEqual(&was, &is) {
			t.Fatalf("%x was cut to %x, which is not the remainder", raw, out)
		}
	})
}
