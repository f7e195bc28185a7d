package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestEvents: what changes is told about the object of the group, and work goes on where that is not allowed.
func TestEvents(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{Events: true})
		w.play(3 * time.Second)
		two := w.start("two", random(), Options{Events: true})
		w.play(3 * time.Second)
		two.set(func() { two.faults.killed = true })
		w.play(20 * time.Second)
		object, err := w.server.Object(leaseResource, "a", "gateways")
		if err != nil {
			t.Fatal(err)
		}
		resource := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
		events, err := w.server.Objects(resource)
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, e := range events {
			reason, _, _ := unstructured.NestedString(e.Object, "reason")
			from, _, _ := unstructured.NestedString(e.Object, "reportingInstance")
			uid, _, _ := unstructured.NestedString(e.Object, "regarding", "uid")
			if told = append(told, from+" "+reason); uid != string(object.GetUID()) {
				t.Errorf("%s is about %q, not %q", reason, uid, object.GetUID())
			}
		}
		for _, want := range []string{
			"one MemberJoined", "one SlotsGained", "one SlotsReleased", "two MemberJoined",
			"two SlotsGained", "one MemberDied",
		} {
			if !slices.Contains(told, want) {
				t.Errorf("%q was not told: %q", want, told)
			}
		}
		w.server.On(apiserver.Match{Resource: "events"}, apiserver.Answer(apiserver.Failure(403)))
		three := w.start("three", random(), Options{Events: true})
		w.within(5*time.Second, 8, "a start without the right to write Events")
		one.stop()
		<-one.ended
		w.play(time.Second)
		if one.err != nil || three.g.Held().IsEmpty() {
			t.Errorf("without the right: %v, held %s", one.err, three.g.Held())
		}
	})
}

// TestHere names who works on a slot instead.
func TestHere(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.start("one", random(), Options{}), w.start("two", random(), Options{})
		w.play(5 * time.Second)
		for namespace := range 20 {
			namespace := fmt.Sprint(namespace, "-namespace")
			slot := one.g.Layout().SlotOf(namespace, "")
			holder, other := one, two
			if two.g.Held().Holds(slot) {
				holder, other = two, one
			}
			if err := holder.g.Here(namespace, ""); err != nil {
				t.Errorf("slot %d at its holder: %v", slot, err)
			}
			var e *HolderError
			if err := other.g.Here(namespace, ""); !errors.As(err, &e) || e.Holder != holder.name ||
				!errors.Is(err, ErrNotHeld) {
				t.Errorf("slot %d, which %s holds: %v", slot, holder.name, err)
			}
		}
	})
}
