package group

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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

// TestDeleted: members of a group that is made anew stop before those of the new one begin.
func TestDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.three(Options{})
		s := &script{linger: -1}
		w.start("four", random(), Options{}, s)
		w.play(3 * time.Second)
		if err := w.server.Remove(leaseResource, "a", "gateways"); err != nil {
			t.Fatal(err)
		}
		w.play(time.Second)
		w.within(20*time.Second, 8, "the group was deleted")
		if !errors.Is(s.cause(), ErrLost) {
			t.Errorf("the context has ended with %v", s.cause())
		}
	})
}

// TestDeletedUnseen: one member does not see that the group is made anew. The others wait until it has stopped.
func TestDeletedUnseen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		held := one.g.Held()
		one.set(func() { one.faults.blind = true })
		if err := w.server.Remove(leaseResource, "a", "gateways"); err != nil {
			t.Fatal(err)
		}
		w.play(30 * time.Second)
		if one.g.Held() != held || !two.g.Held().IsEmpty() || !three.g.Held().IsEmpty() {
			t.Errorf("one holds %s, two %s, three %s", one.g.Held(), two.g.Held(), three.g.Held())
		}
		one.set(func() { one.faults.blind = false })
		w.within(20*time.Second, 8, "all have seen it")
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
				w.play(20 * time.Second)
				one.set(func() { one.faults.blind = false })
				w.within(20*time.Second, 8, "all have seen it")
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

// TestEdited: one clear line, and the group begins anew.
func TestEdited(t *testing.T) {
	type object = unstructured.Unstructured
	type notes = map[string]string
	for _, tc := range []struct {
		reason string
		edit   func(*object, notes)
		line   string
		keeps  bool // the group goes on as if nothing were
	}{
		{"no JSON", func(_ *object, a notes) { a[recordAnnotation] = "{" }, "cannot be used", false},
		{"no record", func(_ *object, a notes) { delete(a, recordAnnotation) }, "cannot be used", false},
		{"another role", func(_ *object, a notes) { a[roleAnnotation] = "watch" }, "its role is", false},
		{"a holder less", func(_ *object, a notes) {
			a[recordAnnotation] = strings.Replace(a[recordAnnotation], `"holds":"`, `"hold":"`, 1)
		}, "it was edited", false},
		{"as it was at the beginning", func(_ *object, a notes) {
			a[recordAnnotation] = fresh(shard.Layout{Slots: 8}, "").encode()
		}, "it is at 0, and was at", false},
		{"no label", func(u *object, _ notes) { u.SetLabels(nil) }, "", true},
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
				w.play(18 * time.Second)
				w.within(0, 8, "it was edited")
				s := one.g.Status()
				if kept := s.Member == before; kept != tc.keeps || s.Err != nil {
					t.Errorf("it goes on: %t, with %v", kept, s.Err)
				}
				if !strings.Contains(w.logs.String(), tc.line) {
					t.Errorf("no line says %q: %s", tc.line, w.logs.String())
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
			a[recordAnnotation] = `{"format":3}`
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
