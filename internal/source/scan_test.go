package source_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"github.com/fairlead-io/fairlead/internal/source"
)

// facts is a header in a comparable form.
type facts struct {
	APIVersion, Kind, Namespace, Name, UID, Version, Deletion string
	Generation                                                int64
	Labels                                                    map[string]string
	Owners                                                    []string
	Finalizers                                                int
}

func factsOf(h *source.Header) facts {
	f := facts{
		string(h.APIVersion), string(h.Kind), string(h.Namespace), string(h.Name), string(h.UID), string(h.ResourceVersion),
		string(h.DeletionTimestamp), h.Generation, nil, nil, h.Finalizers,
	}
	for _, l := range h.Labels {
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[string(l.Key)] = string(l.Value)
	}
	for _, o := range h.Owners {
		f.Owners = append(f.Owners, owner(string(o.UID), string(o.Kind), string(o.Name), string(o.APIVersion), o.Controller))
	}
	return f
}

func owner(uid, kind, name, apiVersion string, controller bool) string {
	s := strings.Join([]string{uid, kind, name, apiVersion}, "|")
	if controller {
		s += "|controller"
	}
	return s
}

// typed has the scanned fields as a Go type, so that the JSON library of Kubernetes can decode them for comparison.
type typed struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		UID               string            `json:"uid"`
		ResourceVersion   string            `json:"resourceVersion"`
		Generation        int64             `json:"generation"`
		DeletionTimestamp *string           `json:"deletionTimestamp"`
		Labels            map[string]string `json:"labels"`
		OwnerReferences   []struct {
			UID        string `json:"uid"`
			Kind       string `json:"kind"`
			Name       string `json:"name"`
			APIVersion string `json:"apiVersion"`
			Controller *bool  `json:"controller"`
		} `json:"ownerReferences"`
		Finalizers    []string `json:"finalizers"`
		ManagedFields any      `json:"managedFields"`
	} `json:"metadata"`
}

func (o *typed) facts() facts {
	m := &o.Metadata
	f := facts{
		o.APIVersion, o.Kind, m.Namespace, m.Name, m.UID, m.ResourceVersion, "", m.Generation, m.Labels, nil,
		len(m.Finalizers),
	}
	if m.DeletionTimestamp != nil {
		f.Deletion = *m.DeletionTimestamp
	}
	for _, r := range m.OwnerReferences {
		f.Owners = append(f.Owners, owner(r.UID, r.Kind, r.Name, r.APIVersion, r.Controller != nil && *r.Controller))
	}
	if len(f.Labels) == 0 {
		f.Labels = nil
	}
	return f
}

var scanSamples = []string{
	pod(1), object("a", 1), `{}`, `{"metadata":null}`, `{"metadata":{}}`, `{"metadata":[]}`,
	`{"kind":7,"metadata":{"name":"x"}}`,
	" \n" + `{"metadata":{"name":"x","managedFields":[{"a":1}],"uid":"u"}} `,
	`{"metadata":{"labels":{` + manyLabels() + `}}}`,
	`{"spec":{"metadata":{"name":"inner"}},"metadata":{"name":"outer"}}`,
	` { "metadata" : { "name" : "x" , "labels" : { "a" : "b" , "a" : "c", "d":null } , "generation" : -12 } } `,
	`{"metadata":{"name":"x"},"metadata":{"namespace":"y"}}`,
	`{"metadata":{"name":"a\u00e9\n\ud83d\ude00","labels":{"\u0061":"1","a":"2"}}}`,
	"{\"metadata\":{\"name\":\"\xff\",\"labels\":{\"\xfe\":\"\xfd\"}}}",
	`{"metadata":{"generation":9223372036854775807}}`, `{"metadata":{"generation":9223372036854775808}}`,
	`{"metadata":{"generation":1.0}}`, `{"metadata":{"generation":"1"}}`,
	`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["a","b"]}}`,
	`{"metadata":{"deletionTimestamp":null,"finalizers":null}}`,
	`{"metadata":{"ownerReferences":[{"uid":"u","kind":"K","name":"n","apiVersion":"v1","controller":true,"x":[1]},{"uid":"v","controller":null}]}}`,
	`{"metadata":{"managedFields":[{"a":1}],"name":"x"}}`, `{"metadata":{"name":"x","managedFields":[{"a":1}]}}`,
	`{"metadata":{"managedFields":[]}}`,
	`{"metadata":{"name":"x", "managedFields" : [ ] , "uid":"u"}}`, `{"\u006detadata":{"n\u0061me":"x"}}`,
	`{"metadata":{"labels":{"a":1},"name":"x"}}`,
	`{"metadata":{"name":"x"}`, `{"metadata":{"name":"x"}} x`, `[]`, `null`,
	`{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
}

// manyLabels returns more labels than usual, some of them twice.
func manyLabels() string {
	var all []string
	for i := range 200 {
		all = append(all, fmt.Sprintf("\"k%d\":\"%d\"", i%150, i))
	}
	return strings.Join(all, ",")
}

// FuzzScanJSON: the scan accepts the input of the JSON library of Kubernetes and finds the same values.
func FuzzScanJSON(f *testing.F) {
	for _, s := range scanSamples {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if bytes.Count(raw, []byte("ownerReferences")) > 1 ||
			bytes.Contains(raw, []byte(`\u`)) && bytes.Contains(raw, []byte("wnerRef")) {
			return // decoding a second list into the first one mixes both, which no reader expects
		}
		var h source.Header
		err := source.Scan(source.JSON, raw, &h)
		var want typed
		theirs := kjson.UnmarshalCaseSensitivePreserveInts(raw, &want)
		if strings.TrimSpace(string(raw)) == "null" {
			theirs = errNull
		}
		if (err == nil) != (theirs == nil) {
			t.Fatalf("%q: error %v, library says %v", raw, err, theirs)
		}
		if err != nil {
			return
		}
		if diff := cmp.Diff(want.facts(), factsOf(&h)); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", raw, diff)
		}
		if bytes.Count(raw, []byte("anagedFields")) > 1 || bytes.Contains(raw, []byte(`\u`)) {
			return
		}
		o := source.Object{Raw: raw, Header: h}
		var pruned typed
		if err := kjson.UnmarshalCaseSensitivePreserveInts(o.AppendPruned(nil), &pruned); err != nil {
			t.Fatalf("%q without managedFields %q: %v", raw, o.AppendPruned(nil), err)
		}
		if pruned.Metadata.ManagedFields != nil {
			t.Errorf("%q still has managedFields: %q", raw, o.AppendPruned(nil))
		}
		if diff := cmp.Diff(want.facts(), pruned.facts()); diff != "" {
			t.Errorf("pruning changed %q (-want +got):\n%s", raw, diff)
		}
	})
}

var errNull = &json.SyntaxError{}

func fullPod() *corev1.Pod {
	deleted := metav1.Unix(1700000000, 0)
	yes := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "team-a", UID: types.UID("uid-1"), ResourceVersion: "42", Generation: 7,
			DeletionTimestamp: &deleted,
			Labels:            map[string]string{"app": "web", "tier": "front"},
			Annotations:       map[string]string{"x": strings.Repeat("y", 300)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "uid-2", Controller: &yes}, {Name: "other"},
			},
			Finalizers: []string{"a/b", "c/d"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "one", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}, {Manager: "two"},
			},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func podFacts(p *corev1.Pod) facts {
	f := facts{
		"", "", p.Namespace, p.Name, string(p.UID), p.ResourceVersion, "", p.Generation, p.Labels, nil,
		len(p.Finalizers),
	}
	if p.DeletionTimestamp != nil {
		f.Deletion = p.DeletionTimestamp.UTC().Format("2006-01-02T15:04:05Z07:00")
	}
	for _, r := range p.OwnerReferences {
		f.Owners = append(f.Owners, owner(string(r.UID), r.Kind, r.Name, r.APIVersion, r.Controller != nil && *r.Controller))
	}
	if len(f.Labels) == 0 {
		f.Labels = nil
	}
	return f
}

// FuzzScanProtobuf: the scan accepts any message that the generated type can unmarshal and finds the same values.
func FuzzScanProtobuf(f *testing.F) {
	raw, err := fullPod().Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var h source.Header
		err := source.Scan(source.Protobuf, raw, &h)
		var p corev1.Pod
		if p.Unmarshal(raw) != nil {
			return // the Go type reads all of it, the scan only its metadata
		}
		if err != nil {
			t.Fatalf("%x: %v", raw, err)
		}
		if !canonical(&p, raw) {
			return // several metadata, or fields of a wrong wire type, which Marshal never writes
		}
		if diff := cmp.Diff(podFacts(&p), factsOf(&h)); diff != "" {
			t.Fatalf("%x (-want +got):\n%s", raw, diff)
		}
		o := source.Object{Raw: raw, Encoding: source.Protobuf, Header: h}
		var pruned corev1.Pod
		if err := pruned.Unmarshal(o.AppendPruned(nil)); err != nil {
			t.Fatalf("%x without managedFields: %v", raw, err)
		}
		p.ManagedFields = nil
		if diff := cmp.Diff(p, pruned); diff != "" {
			t.Errorf("pruning changed %x", raw)
		}
	})
}

// canonical reports whether raw is the output of Marshal for p.
func canonical(p *corev1.Pod, raw []byte) bool {
	again, err := p.Marshal()
	return err == nil && bytes.Equal(again, raw)
}

func TestScanDoesNotAllocate(t *testing.T) {
	raw := []byte(pod(1))
	var h source.Header
	if n := testing.AllocsPerRun(100, func() {
		if err := source.Scan(source.JSON, raw, &h); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per scan", n)
	}
	proto, err := fullPod().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := source.Scan(source.Protobuf, proto, &h); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per scan of protobuf", n)
	}
}

// TestScanNamesTheWrongMember: a member of a wrong type does not hide the others, and the error names it.
func TestScanNamesTheWrongMember(t *testing.T) {
	t.Parallel()
	var h source.Header
	err := source.Scan(source.JSON, []byte(`{"metadata":{"labels":{"a":1},"name":"x","uid":"u"}}`), &h)
	if err == nil || !strings.Contains(err.Error(), "metadata.labels") || string(h.Name) != "x" || string(h.UID) != "u" {
		t.Errorf("error %v, header %+v", err, factsOf(&h))
	}
}
