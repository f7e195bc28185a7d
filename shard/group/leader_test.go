package group

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// TestLeader: no slot is held while somebody leads, nobody leads while slots are held, and the last one gives it back.
func TestLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := newElder(t, w)
		e.toggle()
		testbed.Settle(3 * time.Second)
		o := Options{Leader: "leader"}
		one := w.start("one", random(), o)
		two := w.start("two", random(), o)
		for range 300 {
			w.play(200 * time.Millisecond)
			e.check()
		}
		if err := one.g.Status().Err; !errors.Is(err, ErrLeader) && !errors.Is(two.g.Status().Err, ErrLeader) {
			t.Errorf("the status is %v", err)
		}
		if e.lease.Fence(t.Context()) != nil {
			t.Error("the leader has lost its lease")
		}
		e.toggle()
		w.within(6*time.Second, 8, "the leader has gone")
		e.toggle()
		one.set(func() { one.faults.killed = true }) // the one that renews it
		one.stop()
		for range 600 {
			w.play(200 * time.Millisecond)
			if e.lease.Fence(t.Context()) == nil {
				t.Fatal("another one leads")
			}
		}
		two.stop()
		<-two.ended
		testbed.Settle(6 * time.Second)
		if e.lease.Fence(t.Context()) != nil {
			t.Error("after the last one has left nobody leads")
		}
		e.close()
	})
}

// TestLeaderTaken: somebody takes the Lease of the leader by force: all stop.
func TestLeaderTaken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.three(Options{Leader: "leader"})
		if _, err := w.server.Change(leaseResource, "a", "leader", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, "somebody", "spec", "holderIdentity")
		}); err != nil {
			t.Fatal(err)
		}
		w.play(8 * time.Second)
		for _, names := range w.holders() {
			if len(names) > 0 {
				t.Fatalf("%v work", names)
			}
		}
		w.play(70 * time.Second)
		w.within(0, 8, "it has expired")
	})
}

// TestBlackout: the server is away for longer than a leader's Lease lasts. Whoever is first then, never do two work.
func TestBlackout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := newElder(t, w)
		w.three(Options{Leader: "leader"})
		e.toggle()
		w.play(10 * time.Second)
		for range 5 {
			down := w.server.On(apiserver.Match{}, apiserver.Drop())
			w.play(100 * time.Second)
			down.Off()
			for range 300 {
				w.play(50 * time.Millisecond)
				e.check()
			}
		}
		e.close()
	})
}
