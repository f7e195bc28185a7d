package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/shard"
)

func bubble(t *testing.T, fn func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.reason = t.Name()
		defer w.close()
		fn(t, w)
	})
}

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// three starts three members and waits until they share the slots.
func (w *world) three(o Options) (one, two, three *process) {
	w.t.Helper()
	one, two, three = w.start("one", random(), o), w.start("two", random(), o), w.start("three", random(), o)
	w.play(3 * time.Second)
	w.within(0, one.g.Layout().Len(), "the start")
	return one, two, three
}

func TestShare(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		for _, p := range []*process{one, two, three} {
			if n := p.g.Held().Len(); n < 2 || n > 3 {
				t.Errorf("%s holds %d slots", p.name, n)
			}
		}
		two.stop()
		w.within(time.Second, 8, "a leave")
		<-two.ended
		if two.err != nil || !two.g.Held().IsEmpty() || !errors.Is(two.g.Fence(0), ErrNotHeld) {
			t.Errorf("it has left with %v, and holds %s", two.err, two.g.Held())
		}
		if err := two.g.Run(t.Context()); err == nil {
			t.Error("it runs twice")
		}
		three.set(func() { three.faults.killed = true })
		three.stop()
		w.within(15*time.Second, 8, "a crash")
		if !one.g.Held().IsAll() {
			t.Errorf("the last one holds %s", one.g.Held())
		}
	})
}

// TestPaused: a member that was paused for longer than its lease lasts is let through nowhere when it goes on, before
// anything of it has noticed, and its slots are lost, not moved.
func TestPaused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		held := one.g.Held()
		var slot int
		for slot = range held.Slots() {
			break
		}
		ctx := one.g.Context(slot)
		one.pause()
		w.within(15*time.Second, 8, "a pause")
		one.resume()
		if err := one.g.Fence(slot); !errors.Is(err, ErrLost) || !one.g.Held().IsEmpty() {
			t.Errorf("it may send for slot %d: %v", slot, err)
		}
		w.play(5 * time.Second)
		if err := context.Cause(ctx); !errors.Is(err, ErrLost) {
			t.Errorf("the context ended with %v", err)
		}
		if one.g.Held().IsEmpty() {
			t.Error("it has not joined again")
		}
	})
}

// TestPausedInFlight: the answer to a renewal that comes when the process goes on is of long ago.
func TestPausedInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		one.set(func() { one.faults.trap = true })
		w.play(2 * time.Second)
		w.within(15*time.Second, 8, "a pause")
		one.set(func() { one.faults = faults{blind: true} }) // else it would see at once what has happened
		one.resume()
		w.play(5 * time.Second)
		one.set(func() { one.faults.blind = false })
		w.play(5 * time.Second)
		if one.g.Held().IsEmpty() {
			t.Error("it has not joined again")
		}
	})
}

// TestHandover: participants lose in the reverse order in which they gain, a slot as soon as nothing of it runs any
// more, and at the latest when the drain bound has passed.
func TestHandover(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{Layout: shard.Layout{Slots: 2}})
		w.play(3 * time.Second)
		first, second := &script{}, &script{linger: 1}
		two := w.start("two", random(), Options{Layout: shard.Layout{Slots: 2}}, first, second)
		w.play(3 * time.Second)
		one.stop()
		w.play(time.Second)
		if !two.g.Held().IsAll() {
			t.Fatalf("two holds %s", two.g.Held())
		}
		ctx := two.g.Context(1)
		three := w.start("three", random(), Options{Layout: shard.Layout{Slots: 2}})
		two.stop()
		w.play(time.Second)
		if got := three.g.Held().String(); got != "0" {
			t.Errorf("after a second three holds %q, want what is at rest", got)
		}
		if err := two.g.Fence(1); err != nil {
			t.Errorf("what goes on may not send: %v", err)
		}
		w.play(8 * time.Second)
		if ctx.Err() != nil {
			t.Error("the context has ended before the bound")
		}
		w.play(2 * time.Second)
		if !errors.Is(context.Cause(ctx), ErrMoved) || !three.g.Held().IsAll() {
			t.Errorf("after the bound the context has ended with %v, three holds %s", context.Cause(ctx), three.g.Held())
		}
		<-two.ended
		if len(first.lost) == 0 || len(second.lost) == 0 || second.lost[0].After(first.lost[0]) {
			t.Errorf("they have lost at %v and %v", first.lost, second.lost)
		}
		if first.gained.Load() != 2 || second.gained.Load() != 2 {
			t.Errorf("they have gained %d and %d", first.gained.Load(), second.gained.Load())
		}
	})
}

// script is a participant whose work on one slot goes on until it is cancelled.
type script struct {
	linger int
	gained atomic.Int32
	fails  int

	mu   sync.Mutex
	lost []time.Time
}

func (s *script) Gain(_ context.Context, slots shard.Set) error {
	if s.fails > 0 {
		s.fails--
		return errors.New("not now")
	}
	s.gained.Add(int32(slots.Len()))
	return nil
}

func (s *script) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	s.mu.Lock()
	s.lost = append(s.lost, time.Now())
	s.mu.Unlock()
	if s.linger > 0 && slots.Holds(s.linger) {
		quiet(slots.Minus(slots.Layout().Set(s.linger)))
		<-ctx.Done()
	}
}

// TestComesBack: a slot that was let go and comes back, while others are still being lost, is not lost with them.
func TestComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{Layout: shard.Layout{Slots: 4}}, &script{linger: 3})
		w.play(3 * time.Second)
		two := w.start("two", random(), Options{Layout: shard.Layout{Slots: 4}})
		w.play(time.Second)
		if got := two.g.Held().String(); got != "2" {
			t.Fatalf("two holds %s", got)
		}
		two.stop()
		w.play(time.Second)
		ctx := one.g.Context(2)
		w.play(12 * time.Second)
		if ctx.Err() != nil || !one.g.Held().IsAll() {
			t.Errorf("the context has ended with %v, one holds %s", context.Cause(ctx), one.g.Held())
		}
	})
}

// TestGainAgain: a participant that cannot gain is asked again.
func TestGainAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := &script{fails: 3, linger: -1}
		w.start("one", random(), Options{}, s)
		w.play(10 * time.Second)
		if s.gained.Load() != 8 {
			t.Errorf("it has gained %d", s.gained.Load())
		}
	})
}

// TestPanic: nobody knows what of a participant that has panicked still runs: its slots go to nobody before the lease
// has run out.
func TestPanic(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{}, rude{})
		w.play(3 * time.Second)
		two := w.start("two", random(), Options{})
		w.play(3 * time.Second)
		<-one.ended
		if one.err == nil || !strings.Contains(one.err.Error(), "Lose of a participant has failed: enough") {
			t.Errorf("it ended with %v", one.err)
		}
		if !two.g.Held().IsEmpty() {
			t.Errorf("another one has %s already", two.g.Held())
		}
		w.within(15*time.Second, 8, "a panic")
	})
}

type rude struct{}

func (rude) Gain(context.Context, shard.Set) error            { return nil }
func (rude) Lose(context.Context, shard.Set, func(shard.Set)) { panic("enough") }

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

// TestForbidden: without rights nobody works, one line says why, and with them all goes on.
func TestForbidden(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, verb := range []string{"get", "create", "update", "list"} {
			rule := w.server.On(apiserver.Match{Resource: "leases", Verb: verb},
				apiserver.Answer(apiserver.Failure(http.StatusForbidden)))
			p := w.start("one", random(), Options{})
			w.play(time.Minute)
			if err := p.g.Status().Err; !errors.Is(err, ErrForbidden) || !p.g.Held().IsEmpty() {
				t.Errorf("%s: it holds %q with %v", verb, p.g.Held(), err)
			}
			if n := strings.Count(w.logs.String(), "no rights on Leases"); n < 1 || n > 8 {
				t.Errorf("%s: %d lines: %s", verb, n, w.logs.String())
			}
			rule.Off()
			w.within(15*time.Second, 8, "rights")
			w.play(3 * time.Second)
			if err := p.g.Status().Err; err != nil {
				t.Errorf("%s: the status stays %v", verb, err)
			}
			p.stop()
			<-p.ended
			w.logs.Reset()
		}
	})
}

// TestLayout: members of another layout wait until the last one of this one has left, dead or alive.
func TestLayout(t *testing.T) {
	for _, tc := range []struct {
		reason string
		other  Options
		crash  bool
	}{
		{"other slots", Options{Layout: shard.Layout{Slots: 16}}, false},
		{"other slots, and the last one crashes", Options{Layout: shard.Layout{Slots: 16}}, true},
		{"another field", Options{Layout: shard.Layout{Slots: 8, By: shard.UID}}, false},
		{"another leader", Options{Layout: shard.Layout{Slots: 8}, Leader: "leader"}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				one, two, three := w.three(Options{})
				p := w.start("other", random(), tc.other)
				n := tc.other.Layout.Slots
				w.play(5 * time.Second)
				if err := p.g.Status().Err; !errors.Is(err, ErrLayout) || !p.g.Held().IsEmpty() {
					t.Errorf("it holds %s with %v", p.g.Held(), err)
				}
				one.stop()
				two.stop()
				w.play(2 * time.Second)
				if !p.g.Held().IsEmpty() {
					t.Errorf("beside one of the others it holds %s", p.g.Held())
				}
				if tc.crash {
					three.set(func() { three.faults.killed = true })
				}
				three.stop()
				if !tc.crash {
					<-three.ended
				}
				w.within(15*time.Second, n, "the last one has gone")
				w.play(2 * time.Second)
				if err := p.g.Status().Err; err != nil {
					t.Errorf("the status stays %v", err)
				}
			})
		})
	}
}

// TestDeleted: members of a group that is made anew stop before those of the new one begin.
func TestDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, _, _ := w.three(Options{})
		var slot int
		for slot = range one.g.Held().Slots() {
			break
		}
		ctx := one.g.Context(slot)
		if err := w.server.Remove(leaseResource, "a", "gateways"); err != nil {
			t.Fatal(err)
		}
		w.play(time.Second)
		w.within(14*time.Second, 8, "the group was deleted")
		if !errors.Is(context.Cause(ctx), ErrLost) {
			t.Errorf("the context has ended with %v", context.Cause(ctx))
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
		w.within(15*time.Second, 8, "all have seen it")
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
				one, _, _ := w.three(Options{})
				one.set(func() { one.faults.blind = true })
				u, err := w.server.Change(leaseResource, "a", "gateways", func(u *unstructured.Unstructured) {
					a := u.GetAnnotations()
					r, err := decode(a[recordAnnotation])
					if err != nil {
						t.Fatal(err)
					}
					if last := len(r.members) - 1; tc.founded {
						for i := range r.slots {
							r.slots[i] = slot{r.members[last].ID, r.members[last].ID}
						}
					} else {
						r.slots, r.founded = make([]slot, len(r.slots)), ""
					}
					a[recordAnnotation] = r.encode()
					u.SetAnnotations(a)
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := w.server.Remove(leaseResource, "a", "gateways"); err != nil {
					t.Fatal(err)
				}
				u.SetUID("")
				testbed.Put(t, w.server, u)
				w.play(20 * time.Second)
				one.set(func() { one.faults.blind = false })
				w.within(15*time.Second, 8, "all have seen it")
			})
		})
	}
}

// TestStubborn: a member joins again when nothing of what it has lost runs any more, not before.
func TestStubborn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{}, stubborn{})
		w.play(3 * time.Second)
		one.set(func() { one.faults.cut = true })
		w.play(7 * time.Second)
		one.set(func() { one.faults.cut = false })
		w.play(15 * time.Second)
		if !one.g.Held().IsEmpty() {
			t.Errorf("beside its old work it holds %s", one.g.Held())
		}
		w.play(10 * time.Second)
		w.within(0, 8, "its work has ended")
	})
}

// stubborn ends its work 20 seconds later than it is told to.
type stubborn struct{}

func (stubborn) Gain(context.Context, shard.Set) error { return nil }
func (stubborn) Lose(ctx context.Context, _ shard.Set, _ func(shard.Set)) {
	<-ctx.Done()
	<-time.After(20 * time.Second)
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
		w.within(7*time.Second, 8, "everything was deleted")
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
				w.play(12 * time.Second)
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
			a[recordAnnotation] = `{"format":2}`
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
		if err := one.g.Status().Err; !errors.Is(err, ErrRecord) || !one.g.Held().IsEmpty() {
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

// TestRejoin: who has lost its Lease knows that it has stopped, and waits for nobody when it comes back.
func TestRejoin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{})
		w.play(3 * time.Second)
		one.set(func() { one.faults.cut = true })
		w.play(7 * time.Second)
		if !one.g.Held().IsEmpty() || one.g.Status().Err == nil {
			t.Errorf("cut off, it holds %s, with %v", one.g.Held(), one.g.Status().Err)
		}
		one.set(func() { one.faults.cut = false })
		w.within(6*time.Second, 8, "it came back")
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

// TestRollout: members are replaced one by one.
func TestRollout(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		for i, old := range []*process{one, two, three} {
			w.start(fmt.Sprint("new", i), random(), Options{})
			w.within(2*time.Second, 8, "a join")
			w.play(2 * time.Second)
			old.stop()
			w.within(time.Second, 8, "a leave")
			w.play(2 * time.Second)
			w.within(0, 8, "a while")
		}
	})
}

// TestDeadWatch: a member whose watch tells nothing any more asks what there is.
func TestDeadWatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, _, three := w.three(Options{})
		w.server.HoldEvents(apiserver.Match{})
		w.server.On(apiserver.Match{Verb: "watch"}, apiserver.Answer(apiserver.Failure(http.StatusTooManyRequests)))
		w.play(5 * time.Second)
		three.set(func() { three.faults.killed = true })
		three.stop()
		w.within(15*time.Second, 8, "a crash")
		four := w.start("four", random(), Options{})
		w.play(8 * time.Second)
		if four.g.Held().IsEmpty() {
			t.Error("nobody has seen the one that came")
		}
	})
}

// TestDeaf: what a member has not heard of for long is not dead if it was renewed all the same.
func TestDeaf(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one, two, three := w.three(Options{})
		before := []shard.Set{one.g.Held(), two.g.Held(), three.g.Held()}
		two.set(func() { two.faults.deaf = true })
		w.play(30 * time.Second)
		for i, p := range []*process{one, two, three} {
			if p.g.Held() != before[i] {
				t.Errorf("%s holds %s, and has held %s", p.name, p.g.Held(), before[i])
			}
		}
	})
}

func TestReport(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var kinds []Kind
		one := w.start("one", random(), Options{
			Layout: shard.Layout{Slots: 4}, OnChange: func(c Change) { kinds = append(kinds, c.Kind) },
		})
		w.play(3 * time.Second)
		got, err := Read(t.Context(), w.server.Config(), "a", "gateways")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		m := got.Members[0]
		want := fmt.Sprintf(`{"group":"a/gateways","of":4,"members":[{"name":"one","slots":[0,1,2,3],`+
			`"since":%q,"renewed":%q}],"moving":[]}`, m.Since.Format(time.RFC3339Nano), m.Renewed.Format(time.RFC3339Nano))
		if string(text) != want {
			t.Errorf("got %s, want %s", text, want)
		}
		if diff := cmp.Diff(*got, one.g.Status().Group); diff != "" {
			t.Errorf("the status is otherwise: %s", diff)
		}
		if age := one.now().Sub(m.Renewed); age < 0 || age > 2*time.Second || one.now().Sub(m.Since) > 5*time.Second {
			t.Errorf("renewed %v ago, since %v", age, m.Since)
		}
		if _, err := Read(t.Context(), w.server.Config(), "a", "none"); !errors.Is(err, ErrNotGroup) {
			t.Errorf("of none: %v", err)
		}
		one.stop()
		<-one.ended
		if kinds = slices.Compact(kinds); !slices.Equal(kinds, []Kind{Joined, Gained, Moving, Released, Left}) {
			t.Errorf("changes: %v", kinds)
		}
	})
}

func TestMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		one := w.start("one", random(), Options{})
		reg := prometheus.NewPedanticRegistry()
		if err := reg.Register(one.g.Collector()); err != nil {
			t.Fatal(err)
		}
		w.play(3 * time.Second)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		if age := got["fairlead_shard_renewal_age_seconds"]; age < 0 || age > 2 {
			t.Errorf("the last renewal was %v ago", age)
		}
		delete(got, "fairlead_shard_renewal_age_seconds")
		want := map[string]float64{
			"fairlead_shard_slots_held": 8, "fairlead_shard_members": 1, "fairlead_shard_slots_gained_total": 8,
			"fairlead_shard_slots_released_total": 0, "fairlead_shard_slots_moving": 0, "fairlead_shard_lost_terms_total": 0,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestOptions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		good := Options{Namespace: "a", Name: "g", Role: "reconcile"}
		for reason, change := range map[string]func(*Options){
			"no namespace":        func(o *Options) { o.Namespace = "" },
			"no name":             func(o *Options) { o.Name = "" },
			"no role":             func(o *Options) { o.Role = "" },
			"too long a name":     func(o *Options) { o.Name = strings.Repeat("x", 64) },
			"no name of a Lease":  func(o *Options) { o.Name = "Gateways" },
			"odd slots":           func(o *Options) { o.Layout.Slots = 3 },
			"too heavy":           func(o *Options) { o.Weight = MaxWeight + 1 },
			"the leader's name":   func(o *Options) { o.Leader = "g" },
			"renewed too rarely":  func(o *Options) { o.Period = 5 * time.Second },
			"respected too short": func(o *Options) { o.Renew = 9 * time.Second },
		} {
			o := good
			change(&o)
			if _, err := New(w.server.Config(), o); err == nil {
				t.Errorf("%s is accepted", reason)
			}
		}
		if _, err := New(nil, good); err == nil {
			t.Error("no configuration is accepted")
		}
		g, err := New(w.server.Config(), good)
		if err != nil {
			t.Fatal(err)
		}
		if g.opt.Duration != 9*time.Second || g.opt.Renew != 6*time.Second || g.opt.Period != 1500*time.Millisecond ||
			g.opt.Drain != 10*time.Second || g.Layout() != (shard.Layout{Slots: 64}) {
			t.Errorf("the defaults are %+v", g.opt)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); err != nil {
			t.Errorf("a run that ends at once: %v", err)
		}
		if n := len(w.server.Log().Select(apiserver.Match{Verb: "create"})); n > 0 {
			t.Errorf("it has created %d Leases", n)
		}
	})
}

func BenchmarkFence(b *testing.B) {
	g := &Group{clock: clock{time.Now, time.After}, opt: Options{Renew: time.Hour}}
	t := &term{g: g}
	t.renewed.Store(&stamp{time.Now()})
	g.holds.Store(&holds{shard.Layout{}.All(), t})
	for b.Loop() {
		if err := g.Fence(7); err != nil {
			b.Fatal(err)
		}
	}
}
