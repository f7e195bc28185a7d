package reconcile_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

var events = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}

func TestRecorder(t *testing.T) {
	bubble(t, func(b *bench) {
		b.start()
		g := testbed.New("a", "web")
		g.UID = "uid-1"
		stored := func() []*unstructured.Unstructured {
			t.Helper()
			all, err := b.server.Objects(events)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		r := reconcile.NewRecorder(b.client(), "gateways")
		for range 3 {
			if err := r.Event(b.ctx, g, corev1.EventTypeNormal, "Ready", "has address %s", "192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		}
		again := reconcile.NewRecorder(b.client(), "gateways") // the process has restarted
		if err := again.Event(b.ctx, g, corev1.EventTypeNormal, "Ready", "has address 192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		if err := r.Event(b.ctx, g, corev1.EventTypeWarning, "Slow", strings.Repeat("ä", 4000)); err != nil {
			t.Fatal(err)
		}
		all := stored()
		if len(all) != 2 {
			t.Fatalf("%d events, want 2", len(all))
		}
		for _, e := range all {
			name, _, _ := unstructured.NestedString(e.Object, "regarding", "name")
			kind, _, _ := unstructured.NestedString(e.Object, "regarding", "kind")
			count, _, _ := unstructured.NestedInt64(e.Object, "series", "count")
			note, _, _ := unstructured.NestedString(e.Object, "note")
			if name != "web" || kind != "Gateway" || len(note) > 1024 || strings.Contains(note, "\ufffd") {
				t.Errorf("the event is %v", e.Object)
			}
			if reason, _, _ := unstructured.NestedString(e.Object, "reason"); reason == "Ready" && count != 2 {
				t.Errorf("the count is %d, want 2, the count of the new process", count)
			}
			if err := b.server.Remove(events, "a", e.GetName()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Event(b.ctx, g, corev1.EventTypeNormal, "Ready", "has address 192.0.2.1"); err != nil ||
			len(stored()) != 1 {
			t.Errorf("after it expired: %v, %d events", err, len(stored()))
		}
		for range 100 {
			if err := r.Event(b.ctx, g, corev1.EventTypeNormal, "Flood", "again"); err != nil {
				t.Fatal(err)
			}
		}
		if d := r.Dropped(); d < 70 || d > 90 {
			t.Errorf("%d of 100 were dropped", d)
		}
		<-time.After(time.Minute)
		before := r.Dropped()
		if err := r.Event(b.ctx, g, corev1.EventTypeNormal, "Flood", "again"); err != nil || r.Dropped() != before {
			t.Errorf("a minute later: %v, dropped %d", err, r.Dropped()-before)
		}
	})
}

func TestConditions(t *testing.T) {
	t.Parallel()
	g := testbed.New("a", "web")
	g.Generation = 3
	conditions := &g.Status.Conditions
	ready := func() bool { // for the current generation
		c := meta.FindStatusCondition(*conditions, "Ready")
		return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == g.Generation
	}
	if ready() {
		t.Error("ready without a condition")
	}
	if !reconcile.SetCondition(g, conditions, "Ready", metav1.ConditionTrue, "Up", "it is up") ||
		!ready() {
		t.Errorf("the conditions are %v", *conditions)
	}
	if reconcile.SetCondition(g, conditions, "Ready", metav1.ConditionTrue, "Up", "it is up") {
		t.Error("setting the same condition again is a change")
	}
	if g.Generation++; ready() {
		t.Error("ready for a generation that was not reconciled")
	}
}

func TestOwnRefuses(t *testing.T) {
	bubble(t, func(b *bench) {
		b.start()
		g := testbed.New("a", "web")
		cm := configMap("cm")
		if err := reconcile.Own(b.client(), g, cm); !errors.Is(err, client.ErrNoUID) {
			t.Errorf("an owner without a uid: %v", err)
		}
		g.UID = "uid-1"
		if err := reconcile.Own(b.client(), g, cm); err != nil || !metav1.IsControlledBy(cm, g) {
			t.Errorf("got %v, %v", err, cm.OwnerReferences)
		}
		if err := reconcile.Own(b.client(), g, cm); err != nil || len(cm.OwnerReferences) != 1 {
			t.Errorf("owned twice: %v, %v", err, cm.OwnerReferences)
		}
		rival := testbed.New("a", "rival")
		rival.UID = "uid-2"
		if err := reconcile.Own(b.client(), rival, cm); !errors.Is(err, reconcile.ErrOwned) {
			t.Errorf("a second controller: %v", err)
		}
		away := configMap("cm")
		away.Namespace = "b"
		if err := reconcile.Own(b.client(), g, away); err == nil {
			t.Error("an owner in another namespace is accepted")
		}
	})
}

// A program without Events in its scheme can still write them.
func TestRecorderWithoutEventsInTheScheme(t *testing.T) {
	bubble(t, func(b *bench) {
		b.start()
		c, err := client.New(client.Options{
			Config: b.server.Config(), Scheme: runtime.NewScheme(), Mapper: b.client().Mapper(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		obj := &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "uid-1"},
		}
		r := reconcile.NewRecorder(c, "gateways")
		for range 2 {
			if err := r.Event(b.ctx, obj, corev1.EventTypeWarning, "Slow", "it is slow"); err != nil {
				t.Fatal(err)
			}
		}
		all, err := b.server.Objects(events)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d events, %v, want 1", len(all), err)
		}
		if n, _, _ := unstructured.NestedInt64(all[0].Object, "series", "count"); n != 2 {
			t.Errorf("the count is %d, want 2", n)
		}
	})
}
