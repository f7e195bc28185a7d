package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// sharedStore is a store of two slots of namespaces, and the output of a member of a group.
type sharedStore struct {
	t      *testing.T
	member *membership
	store  *cache.Store
	sink   source.Sink
	shown  []string
}

// namespacesOfTwo has one namespace for each slot.
var namespacesOfTwo = [2]string{"one", "a"}

func newSharedStore(t *testing.T) *sharedStore {
	t.Helper()
	layout := shard.Layout{Slots: 2}
	s := &sharedStore{t: t, store: store.New(store.Options{Namespaced: true, Shard: "namespace/2"})}
	t.Cleanup(s.store.Close)
	for slot, ns := range namespacesOfTwo {
		if layout.SlotOf(ns, "") != slot {
			t.Fatalf("%s is not in slot %d", ns, slot)
		}
	}
	var err error
	s.member, err = newMembership(&rest.Config{}, groupOptions{group: "default/g"}, layout, "fairlead watch", nil,
		func(_ string, held shard.Set) {
			s.shown = append(s.shown, "SHARD "+held.String())
		})
	if err != nil {
		t.Fatal(err)
	}
	s.sink = s.store.Sink("")
	return s
}

func (s *sharedStore) hold(slots ...int) {
	s.sink.(source.Sharded).Hold(s.member.group.Layout().Set(slots...))
}

// object returns the object of a slot at a version.
func (s *sharedStore) object(slot, version int) *source.Object {
	s.t.Helper()
	ns := namespacesOfTwo[slot]
	o := source.Object{Raw: fmt.Appendf(nil,
		`{"metadata":{"namespace":%q,"name":"x","uid":%q,"resourceVersion":"%d"}}`, ns, ns, version)}
	if err := source.Scan(source.JSON, o.Raw, &o.Header); err != nil {
		s.t.Fatal(err)
	}
	return &o
}

func (s *sharedStore) list(version int, slots ...int) {
	s.t.Helper()
	r := s.sink.Replace()
	for _, slot := range slots {
		if err := r.Put(s.object(slot, version)); err != nil {
			s.t.Fatal(err)
		}
	}
	r.Commit(source.Commit{Version: fmt.Sprint(version)})
}

// print records a batch.
func (s *sharedStore) print(batch []store.Event) error {
	for _, e := range batch {
		s.shown = append(s.shown, e.Type.String()+" "+e.Key.Namespace)
	}
	return nil
}

// TestDepartures: changes may arrive before a slot leaves and be shown after it.
func TestDepartures(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		lost   []int // instead of handed over
		want   []string
	}{
		{
			"An earlier deletion is shown here, once: no other process has held the slot.",
			nil,
			[]string{"ADDED one", "SYNCED ", "DELETED one"},
		},
		{
			"Another process may show the deletion: here the object has left.",
			[]int{0},
			[]string{"ADDED one", "SYNCED ", "LEFT one"},
		},
	} {
		s := newSharedStore(t)
		var d departures
		layout := s.member.group.Layout()
		c := s.store.Subscribe(store.SubscribeOptions{})
		take := func(held shard.Set) {
			for events := c.Take(9); len(events) > 0; events = c.Take(9) {
				if err := s.print(d.filter(held, layout.Set(tc.lost...), events)); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.hold(0, 1)
		s.list(10, 0)
		take(layout.All())
		if err := errors.Join(s.sink.Apply(source.Modified, s.object(0, 11)),
			s.sink.Apply(source.Deleted, s.object(0, 12)),
			s.sink.Apply(source.Added, s.object(0, 13)), s.sink.Apply(source.Modified, s.object(0, 14))); err != nil {
			t.Fatal(err)
		}
		take(layout.Set(1)) // the slot is lost before the store learns of it
		s.hold(1)
		take(layout.Set(1))
		if diff := cmp.Diff(tc.want, s.shown); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestShowAwaitsCertainty: after the lease of a process has expired, changes wait until it has learned which slots it
// has lost.
func TestShowAwaitsCertainty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSharedStore(t)
		all := s.member.group.Layout().All()
		if err := s.member.Gain(t.Context(), all); err != nil { // the group itself holds nothing
			t.Fatal(err)
		}
		c := s.store.Subscribe(store.SubscribeOptions{})
		s.hold(0, 1)
		s.list(10, 0, 1)
		shown := make(chan error)
		go func() {
			for events := c.Take(9); len(events) > 0; events = c.Take(9) {
				if err := s.member.show(t.Context(), events, s.print); err != nil {
					t.Error(err)
				}
			}
			close(shown)
		}()
		synctest.Wait()
		if diff := cmp.Diff([]string{"SHARD 0-1"}, s.shown); diff != "" {
			t.Errorf("before the loss is known (-want +got):\n%s", diff)
		}
		lost, end := context.WithCancelCause(t.Context())
		end(group.ErrLost)
		s.member.Lose(lost, all, nil)
		<-shown
		if diff := cmp.Diff([]string{"SHARD 0-1", "SHARD ", "SYNCED "}, s.shown); diff != "" {
			t.Errorf("then (-want +got):\n%s", diff)
		}
	})
}

// TestLoseAwaitsOutput: a slot is released only when the output says that its objects have left, or after the drain
// bound.
func TestLoseAwaitsOutput(t *testing.T) {
	t.Parallel()
	for _, read := range []bool{true, false} {
		t.Run(fmt.Sprint("output is read: ", read), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { loseSlot(t, read) })
		})
	}
}

func loseSlot(t *testing.T, read bool) {
	s := newSharedStore(t)
	layout := s.member.group.Layout()
	if err := s.member.Gain(t.Context(), layout.All()); err != nil {
		t.Fatal(err)
	}
	s.hold(0, 1)
	s.list(10, 0, 1)
	blocked := make(chan struct{})
	changes := s.store.Drain(store.DrainOptions{Consume: func(batch []store.Event) bool {
		if slices.ContainsFunc(batch, func(e store.Event) bool { return e.Type == store.Left }) {
			<-blocked
		}
		return s.print(batch) == nil
	}})
	life, end := context.WithCancel(t.Context())
	followed := make(chan error)
	go func() { followed <- s.member.follow(life, changes, func() bool { return false }) }()
	synctest.Wait()
	s.hold(1)
	drain, moved := context.WithCancelCause(t.Context())
	released := make(chan struct{})
	go func() {
		s.member.Lose(drain, layout.Set(0), nil)
		close(released)
	}()
	synctest.Wait()
	select {
	case <-released:
		t.Error("the slot was released before the output says that its objects have left")
	default:
	}
	if read {
		close(blocked)
	} else {
		moved(group.ErrMoved)
	}
	<-released
	if read {
		if got := s.shown[len(s.shown)-1]; got != "LEFT one" {
			t.Errorf("the slot was released after %q", got)
		}
	} else {
		close(blocked)
	}
	end()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	moved(nil)
}
