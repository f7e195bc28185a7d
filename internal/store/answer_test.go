package store_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func TestParseDeletionInProtobuf(t *testing.T) {
	t.Parallel()
	zero, half := int64(0), int64(30)
	pod := func(grace *int64, finalizers ...string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "u1", DeletionGracePeriodSeconds: grace, Finalizers: finalizers,
		}}
	}
	for _, tc := range []struct {
		kind    string
		message interface{ Marshal() ([]byte, error) }
		want    string
	}{
		{"Status", &metav1.Status{Status: "Success", Details: &metav1.StatusDetails{UID: "u1"}}, "true u1"},
		{"Status", &metav1.Status{Status: "Success"}, "true "},
		{"Pod", pod(nil), "true u1"},
		{"Pod", pod(&zero), "true u1"},
		{"Pod", pod(&half), "false u1"},
		{"Pod", pod(&zero, "f"), "false u1"},
		{"PodList", &corev1.PodList{}, "false "},
	} {
		gone, uid, err := store.ParseDeletion(enveloped(t, tc.kind, tc.message))
		if got := fmt.Sprint(gone, " ", uid); err != nil || got != tc.want {
			t.Errorf("%s %v: %s, %v, want %s", tc.kind, tc.message, got, err, tc.want)
		}
	}
}

// enveloped returns a message of the core group in the protobuf envelope that servers send.
func enveloped(t *testing.T, kind string, message interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := message.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: kind}, Raw: raw}
	out, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), out...)
}

// A protobuf answer with a field that the Go type lacks is not overlaid for unstructured readers. They would write the
// object back without the field.
func TestProtobufOverUnstructured(t *testing.T) {
	t.Parallel()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u1", ResourceVersion: "5"}, Data: map[string]string{"k": "v"},
	}
	known, err := cm.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	newer := append(bytes.Clone(known), 0xfa, 0x07, 1, 'x') // field 127
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		opt    store.Options
		raw    []byte
		want   store.PutResult
	}{
		{"the type has all of it", store.Options{Unstructured: true, Scheme: scheme}, known, store.Overlaid},
		{"a field that the type lacks", store.Options{Unstructured: true, Scheme: scheme}, newer, store.NeedsBarrier},
		{"no type", store.Options{Unstructured: true}, known, store.NeedsBarrier},
		{"all readers have the type", store.Options{Scheme: scheme}, newer, store.Overlaid},
	} {
		tc.opt.Kind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
		s := newStore(t, tc.opt)
		s.Sink("")
		got, err := s.BeginWrite(store.Key{Name: "a"}, store.WriteContext{}).Done(source.Protobuf, tc.raw)
		if err != nil || got != tc.want {
			t.Errorf("%s: %v, %v, want %v", tc.reason, got, err, tc.want)
		}
	}
}

// An object in doubt is overdue until the server was asked about it or the bound has passed. A wait for a version does
// not end the doubt.
func TestDoubtEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, store.Options{OverlayBound: time.Minute})
		sink := s.Sink("")
		x := thing{name: "x", uid: "u", version: 5}
		list(t, sink, 10, x)
		s.Doubt(x.key())
		s.Doubt(store.Key{}) // no object
		if stats := s.OverlayStats(); !s.Overdue(x.key()) || stats.Entries != 1 {
			t.Errorf("readers trust the store: %+v", stats)
		}
		if err := s.Settle(t.Context(), x.key(), ""); err == nil || !s.Overdue(x.key()) { // there is no source to ask
			t.Errorf("it is settled: %v", err)
		}
		if err := s.Settle(t.Context(), x.key(), "10"); err != nil || !s.Overdue(x.key()) {
			t.Errorf("a version that was there before settles it: %v", err)
		}
		<-time.After(time.Minute + time.Second)
		sink.Bookmark("11")
		if stats := s.OverlayStats(); s.Overdue(x.key()) || stats.Entries != 0 {
			t.Errorf("still in doubt after the bound: %+v", stats)
		}
	})
}

// Stores finds the stores of all versions of a resource, and Server returns the URL of their server.
func TestStoresOfAllVersions(t *testing.T) {
	t.Parallel()
	c, err := store.NewCache(store.CacheOptions{Config: &rest.Config{Host: "https://lb.example.com/k8s/one"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Server(); got == nil || got.String() != "https://lb.example.com/k8s/one" {
		t.Errorf("the server is %v", got)
	}
	c.Server().Host = "another"
	gv := corev1.SchemeGroupVersion
	for _, version := range []string{"v1", "v2"} {
		for _, resource := range []string{"configmaps", "pods"} {
			gv.Version = version
			h, err := c.Open(store.Request{Kind: gv.WithKind("ConfigMap"), Resource: gv.WithResource(resource)})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Release()
			defer h.Close()
		}
	}
	of := gv.WithResource("pods").GroupResource()
	if n := len(c.LookupAll(of)); n != 2 || c.Server().Host != "lb.example.com" {
		t.Errorf("found %d stores of %s at %s", n, of, c.Server())
	}
	var none *store.Cache
	if none.Server() != nil || none.LookupAll(of) != nil {
		t.Error("a nil cache has stores")
	}
}
