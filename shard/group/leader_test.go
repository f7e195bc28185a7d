package group

import (
	"errors"
	"net/http"
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

// TestLeaderUnseen checks that a member which cannot read the group, and so not renew the Lease of the leader, stops
// before another process leads. So do members whose group was deleted and cannot be created again.
func TestLeaderUnseen(t *testing.T) {
	for _, tc := range []struct {
		reason string
		harm   func(w *world, one *process)
	}{
		{"It cannot read.", func(_ *world, one *process) { one.set(func() { one.faults.blind = true }) }},
		{"The group is deleted.", func(w *world, _ *process) {
			w.server.On(apiserver.Match{Resource: "leases", Verb: "create"},
				apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
			w.removeGroup()
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one := w.start("one", random(), Options{Leader: "leader"})
				w.play(3 * time.Second)
				w.within(0, 8, "the start")
				e := newElder(t, w)
				defer e.close()
				e.toggle()
				w.play(5 * time.Second)
				tc.harm(w, one)
				w.play(25 * time.Second)
				w.within(0, 8, "25 s")
				for range 400 {
					w.play(200 * time.Millisecond)
					e.check()
				}
				if err := e.lease.Fence(t.Context()); err != nil {
					t.Errorf("Nobody leads after 100 s: %v.", err)
				}
			})
		})
	}
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
