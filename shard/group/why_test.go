package group

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhy: a member says who holds an object that it does not, and where to ask; and that nobody does.
func TestWhy(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two := w.start("one", random(), Options{Address: "http://one"}), w.start("two", random(), Options{})
		w.play(3 * time.Second)
		w.within(0, 8, "the start")
		for i := range 50 {
			namespace := fmt.Sprint("n", i)
			slot := fmt.Sprint(one.g.Layout().SlotOf(namespace, ""))
			mine, other := one.g.Why(namespace, ""), two.g.Why(namespace, "")
			holder := "one"
			if mine != nil {
				mine, other, holder = other, mine, "two"
			}
			if mine != nil || len(other) != 1 {
				t.Fatalf("%s: %v and %v", namespace, mine, other)
			}
			has := map[string]string{}
			for _, name := range []string{"slot", "member", "address", "group", "dead"} {
				if value, ok := other[0].Evidence[name]; ok {
					has[name] = value
				}
			}
			want := map[string]string{"slot": slot, "member": holder, "group": "a/gateways"}
			if holder == "one" {
				want["address"] = "http://one"
			}
			if diff := cmp.Diff(want, has); diff != "" || other[0].Type != why.HeldBy {
				t.Fatalf("%s: %s, -want +got:\n%s", namespace, other[0].Type, diff)
			}
		}
		late, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, Options{Namespace: "a", Name: "gateways", Role: "test"})
		if err != nil {
			t.Fatal(err)
		}
		if got := late.Why("n", ""); len(got) != 1 || got[0].Type != why.HeldBy || got[0].Evidence["member"] != "" {
			t.Errorf("before it has seen the group: %+v", got)
		}
	})
}

// TestWhyMoving: while a member hands a slot over it says so, though it still holds it.
func TestWhyMoving(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		layout := shard.Layout{Slots: 2}
		one := w.start("one", random(), Options{Layout: layout}, &script{linger: 1})
		w.play(3 * time.Second)
		w.start("two", random(), Options{Layout: layout})
		w.play(3 * time.Second)
		one.stop()
		w.play(time.Second)
		namespace := "n"
		for i := 0; one.g.Layout().SlotOf(namespace, "") != 1; i++ {
			namespace = fmt.Sprint("n", i)
		}
		if err := one.g.Fence(1); err != nil {
			t.Fatalf("what goes on may not send: %v", err)
		}
		got := one.g.Why(namespace, "")
		if len(got) != 1 || got[0].Type != why.HeldBy || got[0].Evidence["moving"] != "true" ||
			got[0].Evidence["next"] != "two" || got[0].Since.IsZero() || !got[0].Progress || got[0].Advice == "" {
			t.Errorf("while the slot moves: %+v", got)
		}
		w.play(20 * time.Second)
		<-one.ended
	})
}

// TestWhyForbidden: members that have lost the right to Leases know no more than that, whoever has held the slot
// before.
func TestWhyForbidden(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		members := []*process{w.start("one", random(), Options{}), w.start("two", random(), Options{})}
		w.play(3 * time.Second)
		w.within(0, 8, "the start")
		rule := w.server.On(apiserver.Match{Resource: "leases"}, apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
		w.play(time.Minute)
		for i := range 20 {
			for _, m := range members {
				told := m.g.Why(fmt.Sprint("n", i), "")
				if len(told) != 1 || told[0].Type != why.Forbidden || told[0].Evidence["rule"] != leaseRule() {
					t.Fatalf("n%d: %+v", i, told)
				}
			}
		}
		rule.Off()
		w.within(20*time.Second, 8, "rights")
	})
}
