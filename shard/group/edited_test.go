package group

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/shard"
)

// TestRefused: who has no business in a group takes nothing, and writes nothing.
func TestRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.three(Options{})
		foreign := &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "scheduler"},
		}
		testbed.Put(t, w.server, foreign)
		for name, want := range map[string]error{"gateways": ErrRole, "scheduler": ErrNotGroup} {
			p := w.start("watcher-"+name, random(), Options{
				Namespace: "a", Name: name, Role: "watch", Layout: shard.Layout{Slots: 8},
			})
			w.play(3 * time.Second)
			<-p.ended
			if !errors.Is(p.err, want) || !errors.Is(p.g.Status().Err, want) {
				t.Errorf("%s: it ended with %v", name, p.err)
			}
		}
		for _, r := range w.server.Log().Requests {
			if strings.HasPrefix(r.Name, "scheduler") && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
				t.Errorf("a %s of %s", r.Verb, r.Name)
			}
			if strings.Contains(string(r.Body), "watcher") {
				t.Errorf("a %s of %s by who was refused", r.Verb, r.Name)
			}
		}
		w.within(0, 8, "it")
	})
}

// removeGroup deletes the Lease of the group.
func (w *world) removeGroup() {
	w.t.Helper()
	if err := w.server.Remove(leaseResource, "a", "gateways"); err != nil {
		w.t.Fatal(err)
	}
}

// keeps lets time pass, and fails as soon as a member does not hold exactly the slots that it holds now.
func (w *world) keeps(d time.Duration, what string) {
	w.t.Helper()
	held := map[*process]shard.Set{}
	for _, p := range w.processes() {
		held[p] = p.g.Held()
	}
	for end := time.Now().Add(d); time.Now().Before(end) && !w.t.Failed(); testbed.Settle(20 * time.Millisecond) {
		w.holders()
		for p, before := range held {
			if now := p.g.Held(); now != before {
				w.t.Errorf("%s: after %s %s holds %q, before %q", w.reason, what, p.name, now, before)
			}
		}
	}
}

// TestDeleted checks that the members of a deleted group keep their slots, and share them in the next one as before. A
// member that joins gains a slot after the duration of a Lease, and not before.
func TestDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.cover = coverage{Program: "p", Kinds: []string{"a"}}
		one, _, _ := w.three(Options{Weight: 2})
		s := &script{linger: -1}
		w.start("four", random(), Options{}, s)
		w.play(3 * time.Second)
		members := one.g.Status().Group.Members
		w.removeGroup()
		w.keeps(3*time.Second, "a deletion")
		for _, m := range members {
			if !slices.ContainsFunc(one.g.Status().Group.Members, func(other MemberReport) bool {
				return other.Name == m.Name && other.Since.Equal(m.Since) && slices.Equal(other.Slots, m.Slots)
			}) {
				t.Errorf("The member was %+v, and they are %+v.", m, one.g.Status().Group.Members)
			}
		}
		five := w.start("five", random(), Options{Weight: 2})
		w.keeps(11*time.Second, "a deletion and a join")
		w.play(5 * time.Second)
		w.within(0, 8, "the duration of a Lease")
		if five.g.Held().IsEmpty() {
			t.Error("The member that has joined holds nothing.")
		}
		if s.gained.Load() == 0 || s.cause() != nil {
			t.Errorf("Of four slots of a participant, their context has ended with %v.", s.cause())
		}
		w.removeGroup()
		w.keeps(20*time.Second, "a second deletion")
		if err := one.g.Status().Err; err != nil {
			t.Errorf("the status stays %v", err)
		}
	})
}

// TestDeletedInMove checks that a slot which moves while the group is deleted stays with the member that holds it,
// whatever the Leases of both members name.
func TestDeletedInMove(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := &script{linger: 3, over: make(chan struct{})}
		one := w.start("one", random(), Options{Layout: fourSlots}, s)
		w.play(3 * time.Second)
		two := w.start("two", random(), Options{Layout: fourSlots})
		w.play(100 * time.Millisecond) // the Lease of one still names slot 2, and that of two names none
		if one.g.Held().String() != "0-1,3" || two.g.Held().String() != "2" {
			t.Fatalf("one holds %s, two %s", one.g.Held(), two.g.Held())
		}
		w.removeGroup()
		w.keeps(9*time.Second, "a deletion in a move")
		s.finish()
		w.play(10 * time.Second)
		w.within(0, 4, "the move has ended")
		if !two.g.Held().Holds(2) || one.g.Held().Len() != 2 {
			t.Errorf("one holds %s, two %s", one.g.Held(), two.g.Held())
		}
	})
}

// TestDeletedWithCrash checks that the slots of a member that has crashed wait for the duration of its Lease, and are
// then held by others.
func TestDeletedWithCrash(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		held := one.g.Held().Len() + two.g.Held().Len()
		three.set(func() { three.faults.killed = true })
		three.stop()
		w.removeGroup()
		w.play(14 * time.Second)
		if now := one.g.Held().Len() + two.g.Held().Len(); now != held {
			t.Errorf("After 14 s the others hold %d slots, before %d.", now, held)
		}
		w.within(6*time.Second, 8, "a crash and a deletion")
	})
}

// TestDeletedUnseen checks that a member that does not see the new group keeps its slots, and so do the others. No slot
// is given meanwhile.
func TestDeletedUnseen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, three := w.three(Options{})
		one.set(func() { one.faults.blind = true })
		w.removeGroup()
		w.keeps(30*time.Second, "a deletion that one member does not see")
		three.stop()
		<-three.ended
		w.keeps(20*time.Second, "a leave that one member does not see")
		one.set(func() { one.faults.blind = false })
		w.within(20*time.Second, 8, "all have seen it")
	})
}

// TestDeletedWithLease checks that a member keeps its slots to itself until it has stopped, if its Lease is deleted
// together with the group. A member that joins cannot have known it.
func TestDeletedWithLease(t *testing.T) {
	for _, tc := range []struct {
		reason string
		dead   bool
	}{{"Another member lives, without slots.", false}, {"Another member is marked as dead.", true}} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one := w.start("one", random(), Options{Weight: maxWeight})
				w.play(3 * time.Second)
				two := w.start("two", random(), Options{})
				w.play(3 * time.Second)
				other := leaseName("gateways", two.g.Status().Member)
				if !one.g.Held().IsAll() {
					t.Fatalf("one holds %s", one.g.Held())
				}
				one.set(func() { one.faults.cut = true })
				if tc.dead {
					two.set(func() { two.faults.killed = true })
					if _, err := w.server.Change(leaseResource, "a", other, func(u *unstructured.Unstructured) {
						a := u.GetAnnotations()
						a[deadAnnotation] = "one"
						u.SetAnnotations(a)
					}); err != nil {
						t.Fatal(err)
					}
				}
				w.removeGroup()
				if err := w.server.Remove(leaseResource, "a", leaseName("gateways", one.g.Status().Member)); err != nil {
					t.Fatal(err)
				}
				w.play(3 * time.Second) // the Lease of two names the new group
				w.start("three", random(), Options{})
				w.play(11 * time.Second)
				w.within(10*time.Second, 8, "a deletion of the group and a Lease")
			})
		})
	}
}

// TestCopiedThenDeleted checks that slots which a record leaves out stay with the member that holds them until it has
// stopped, although its Lease is deleted long after the group.
func TestCopiedThenDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		u, err := w.server.Object(leaseResource, "a", "gateways")
		if err != nil {
			t.Fatal(err)
		}
		one.set(func() { one.faults.blind = true })
		a := u.GetAnnotations()
		a[recordAnnotation] = fresh(shard.Layout{Slots: 8}, "").encode()
		u.SetAnnotations(a)
		w.removeGroup()
		u.SetUID("")
		testbed.Put(t, w.server, u)
		w.keeps(20*time.Second, "a copy that leaves out one member")
		if err := w.server.Remove(leaseResource, "a", leaseName("gateways", one.g.Status().Member)); err != nil {
			t.Fatal(err)
		}
		w.play(14 * time.Second)
		one.set(func() { one.faults.blind = false })
		w.within(6*time.Second, 8, "a Lease was deleted")
	})
}

// TestDeletedUnlisted checks that members which may not list Leases keep their slots while the group is deleted, and
// give no slot before they may.
func TestDeletedUnlisted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, _ := w.three(Options{})
		rule := w.server.On(apiserver.Match{Resource: "leases", Verb: "list"},
			apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
		w.removeGroup()
		two.set(func() { two.faults.killed = true })
		two.stop()
		w.play(40 * time.Second)
		if err := one.g.Status().Err; !errors.Is(err, ErrForbidden) || one.g.Held().IsEmpty() || w.whole(8) {
			t.Errorf("It holds %q with %v, and all slots are held: %t.", one.g.Held(), err, w.whole(8))
		}
		rule.Off()
		w.within(20*time.Second, 8, "the right to list")
	})
}

// TestOtherLayoutWaits checks that a member with another layout does not create a deleted group while the Leases of
// members name slots.
func TestOtherLayoutWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		three := []*process{}
		for _, name := range []string{"one", "two", "three"} {
			p := w.start(name, random(), Options{})
			p.set(func() { p.faults.answer = 500 * time.Millisecond }) // the other one is quicker
			three = append(three, p)
		}
		w.play(8 * time.Second)
		other := w.start("other", random(), Options{Layout: shard.Layout{Slots: 16}})
		w.play(5 * time.Second)
		w.removeGroup()
		w.keeps(20*time.Second, "a deletion")
		for _, p := range three {
			p.stop()
		}
		w.within(10*time.Second, 16, "the members of the old layout have left")
		if !other.g.Held().IsAll() {
			t.Errorf("other holds %s", other.g.Held())
		}
	})
}

// TestOtherLayoutCreates checks that a member without slots does not keep a group of another layout from its slots.
func TestOtherLayoutCreates(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{Weight: maxWeight})
		w.play(3 * time.Second)
		two := w.start("two", random(), Options{})
		w.play(3 * time.Second)
		two.set(func() { two.faults.answer = 500 * time.Millisecond }) // the other one is quicker
		other := w.start("other", random(), Options{Layout: shard.Layout{Slots: 16}})
		w.play(3 * time.Second)
		one.set(func() { one.faults.killed = true })
		if err := w.server.Remove(leaseResource, "a", leaseName("gateways", one.g.Status().Member)); err != nil {
			t.Fatal(err)
		}
		one.stop()
		w.removeGroup()
		w.play(2 * time.Second)
		if of := two.g.Status().Group.Of; of != 16 {
			t.Fatalf("The group was created with %d slots.", of)
		}
		w.within(20*time.Second, 16, "a member of another layout has created the group")
		if !other.g.Held().IsAll() {
			t.Errorf("The other one holds %s.", other.g.Held())
		}
	})
}

// TestCopied: the group is made anew from a copy, by somebody who means well, and one member cannot see it.
func TestCopied(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		founded bool // when it was copied
	}{{"before slots were held", false}, {"when others held them", true}} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one, two, _ := w.three(Options{})
				one.set(func() { one.faults.blind = true })
				u, err := w.server.Object(leaseResource, "a", "gateways")
				if err != nil {
					t.Fatal(err)
				}
				a := u.GetAnnotations()
				r, err := decode(a[recordAnnotation])
				if err != nil {
					t.Fatal(err)
				}
				if tc.founded {
					for i := range r.slots {
						r.slots[i] = slot{two.g.Status().Member, two.g.Status().Member}
					}
				} else {
					r.slots, r.founded = make([]slot, len(r.slots)), ""
				}
				a[recordAnnotation] = r.encode()
				u.SetAnnotations(a)
				if err := w.server.Remove(leaseResource, "a", "gateways"); err != nil {
					t.Fatal(err)
				}
				u.SetUID("")
				testbed.Put(t, w.server, u)
				w.keeps(20*time.Second, "a copy")
				one.set(func() { one.faults.blind = false })
				w.keeps(20*time.Second, "all have seen it")
				w.within(0, 8, "all have seen it")
			})
		})
	}
}

// TestAllDeleted: somebody deletes every Lease there is, and one member cannot notice.
func TestAllDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		one.set(func() { one.faults.cut = true })
		all, err := w.server.Objects(leaseResource)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			if err := w.server.Remove(leaseResource, "a", l.GetName()); err != nil {
				t.Fatal(err)
			}
		}
		w.play(8 * time.Second)
		w.within(12*time.Second, 8, "everything was deleted")
	})
}

// TestEdited checks that one line names an edit, that the group is created again, and that no member loses a slot.
func TestEdited(t *testing.T) {
	type object = unstructured.Unstructured
	type notes = map[string]string
	for _, tc := range []struct {
		reason string
		edit   func(*object, notes)
		line   string
	}{
		{"no JSON", func(_ *object, a notes) { a[recordAnnotation] = "{" }, "cannot be used"},
		{"no record", func(_ *object, a notes) { delete(a, recordAnnotation) }, "cannot be used"},
		{"another role", func(_ *object, a notes) { a[roleAnnotation] = "watch" }, "its role is"},
		{"a holder less", func(_ *object, a notes) {
			a[recordAnnotation] = strings.Replace(a[recordAnnotation], `"holds":"`, `"hold":"`, 1)
		}, "it was edited"},
		{"as it was at the beginning", func(_ *object, a notes) {
			a[recordAnnotation] = fresh(shard.Layout{Slots: 8}, "").encode()
		}, "it is at 0, and was at"},
		{"as it was in a former group", func(_ *object, a notes) {
			r := fresh(shard.Layout{Slots: 8}, "")
			r.rev, r.members = 1000, []member{{ID: "x", Weight: 1}}
			a[recordAnnotation] = r.encode()
		}, "it is that of a former group"},
		{"no label", func(u *object, _ notes) { u.SetLabels(nil) }, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one, _, _ := w.three(Options{})
				before := one.g.Status().Member
				if _, err := w.server.Change(leaseResource, "a", "gateways", func(u *unstructured.Unstructured) {
					a := u.GetAnnotations()
					tc.edit(u, a)
					u.SetAnnotations(a)
				}); err != nil {
					t.Fatal(err)
				}
				w.keeps(18*time.Second, "an edit")
				w.within(0, 8, "an edit")
				if s := one.g.Status(); s.Member != before || s.Err != nil {
					t.Errorf("It was %s, and is %s with %v.", before, s.Member, s.Err)
				}
				if !strings.Contains(w.logged(), tc.line) {
					t.Errorf("no line says %q: %s", tc.line, w.logged())
				}
			})
		})
	}
}

// TestNewerFormat: what a program to come has written is left alone.
func TestNewerFormat(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		u, err := w.server.Change(leaseResource, "a", "gateways", func(u *unstructured.Unstructured) {
			a := u.GetAnnotations()
			a[recordAnnotation] = `{"format":4}`
			u.SetAnnotations(a)
		})
		if err != nil {
			t.Fatal(err)
		}
		w.play(time.Minute)
		now, err := w.server.Object(leaseResource, "a", "gateways")
		if err != nil || now.GetResourceVersion() != u.GetResourceVersion() {
			t.Errorf("it was written: %v", err)
		}
		if err := one.g.Status().Err; !errors.Is(err, errRecord) || !one.g.Held().IsEmpty() {
			t.Errorf("one holds %s with %v", one.g.Held(), err)
		}
	})
}

// TestAllDeletedBesideNewer: everything is deleted, and the members cannot notice. A program of a former release, which
// waits because it cannot read their record, knows that there are members. It takes no slot until their Leases would
// have expired.
func TestAllDeletedBesideNewer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.objects = numbered("team-%d", 100)
		o := Options{Layout: shard.Layout{Slots: 64}}
		one, two, three := w.three(o)
		w.play(2 * time.Minute)
		o.format = 2
		former := w.start("former", random(), o)
		w.play(10 * time.Second)
		if one.g.Layout().Version() == 0 || !errors.As(former.g.Status().Err, new(errFormat)) {
			t.Fatalf("with boundaries of version %d the former release says: %v", one.g.Layout().Version(),
				former.g.Status().Err)
		}
		for _, p := range []*process{one, two, three} {
			p.set(func() { p.faults.blind = true })
		}
		for _, l := range w.leases() {
			if err := w.server.Remove(leaseResource, "a", l.GetName()); err != nil {
				t.Fatal(err)
			}
		}
		for end := time.Now().Add(14 * time.Second); time.Now().Before(end); w.play(20 * time.Millisecond) {
			if held := former.g.Held(); !held.IsEmpty() {
				t.Fatalf("the program of the former release holds %s", held)
			}
		}
		w.within(12*time.Second, 64, "everything was deleted")
	})
}

// TestDeletedBesideLayout: a member that cannot read a record, and waits for members of another layout, has seen that
// there is a group. Their Leases are deleted, and they have not noticed it.
func TestDeletedBesideLayout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{Layout: shard.Layout{Slots: 8}})
		w.play(3 * time.Second)
		one.set(func() { one.faults.blind = true })
		if _, err := w.server.Change(leaseResource, "a", "gateways", func(u *unstructured.Unstructured) {
			a := u.GetAnnotations()
			a[recordAnnotation] = "{"
			u.SetAnnotations(a)
		}); err != nil {
			t.Fatal(err)
		}
		two := w.start("two", random(), Options{Layout: shard.Layout{Slots: 16}})
		w.play(time.Second)
		_, err := w.server.Object(leaseResource, "a", "gateways")
		if waits := two.g.Status().Err; err == nil || !errors.Is(waits, ErrLayout) {
			t.Fatalf("reading the group fails with %v, and the member of the other layout says %v", err, waits)
		}
		one.set(func() { one.faults.cut = true })
		if err := w.server.Remove(leaseResource, "a", leaseName("gateways", one.g.Status().Member)); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(14 * time.Second); time.Now().Before(end); w.play(20 * time.Millisecond) {
			if held := two.g.Held(); !held.IsEmpty() {
				t.Fatalf("the member of the other layout holds %s", held)
			}
		}
		w.play(12 * time.Second)
		if held := two.g.Held(); !held.IsAll() {
			t.Errorf("after the duration of a Lease it holds %s", held)
		}
	})
}

// TestMarked: an incarnation whose Lease says that it is dead is, however fresh it thinks it is.
func TestMarked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{})
		w.play(3 * time.Second)
		id := one.g.Status().Member
		if _, err := w.server.Change(leaseResource, "a", "gateways-"+id, func(u *unstructured.Unstructured) {
			a := u.GetAnnotations()
			a[deadAnnotation] = "another"
			u.SetAnnotations(a)
		}); err != nil {
			t.Fatal(err)
		}
		w.play(5 * time.Second)
		if again := one.g.Status().Member; again == id || again == "" || !one.g.Held().IsAll() {
			t.Errorf("%s goes on as %s and holds %s", id, again, one.g.Held())
		}
	})
}

// TestMemberLeaseUnlabeled checks that a member whose Lease loses its label keeps its slots.
func TestMemberLeaseUnlabeled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		if _, err := w.server.Change(leaseResource, "a", leaseName("gateways", one.g.Status().Member),
			func(u *unstructured.Unstructured) { u.SetLabels(nil) }); err != nil {
			t.Fatal(err)
		}
		w.keeps(20*time.Second, "an edit of a Lease")
	})
}

// TestMemberLeaseDeleted: it proves nothing about its member, which stops by itself before anybody takes its slots.
func TestMemberLeaseDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		one.set(func() { one.faults.cut = true }) // it cannot see it
		id := one.g.Status().Member
		if err := w.server.Remove(leaseResource, "a", "gateways-"+id); err != nil {
			t.Fatal(err)
		}
		w.play(20 * time.Second)
		w.within(0, 8, "the Lease of a member was deleted")
	})
}
