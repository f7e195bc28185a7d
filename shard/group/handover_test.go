package group

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/shard"
)

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
		if second.cause() != nil {
			t.Error("the context has ended before the bound")
		}
		w.play(2 * time.Second)
		if !errors.Is(second.cause(), ErrMoved) || !three.g.Held().IsAll() {
			t.Errorf("after the bound the context has ended with %v, three holds %s", second.cause(), three.g.Held())
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
	ctx  context.Context // of the last Lose
}

// cause says why the context of the last Lose has ended, or nil.
func (s *script) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		return nil
	}
	return context.Cause(s.ctx)
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
	s.lost, s.ctx = append(s.lost, time.Now()), ctx
	s.mu.Unlock()
	if s.linger > 0 && slots.Holds(s.linger) {
		quiet(slots.Minus(slots.Layout().Set(s.linger)))
		<-ctx.Done()
	}
}

// TestComesBack: a slot that was let go and comes back, while others are still being lost, is not lost with them.
func TestComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := &script{linger: 3}
		one := w.start("one", random(), Options{Layout: shard.Layout{Slots: 4}}, s)
		w.play(3 * time.Second)
		two := w.start("two", random(), Options{Layout: shard.Layout{Slots: 4}})
		w.play(time.Second)
		if got := two.g.Held().String(); got != "2" {
			t.Fatalf("two holds %s", got)
		}
		two.stop()
		w.play(time.Second)
		if !one.g.Held().Holds(2) {
			t.Fatalf("one holds %s", one.g.Held())
		}
		for range 60 {
			w.play(200 * time.Millisecond)
			if err := one.g.Fence(2); err != nil {
				t.Fatalf("it is lost with others: %v", err)
			}
		}
		if !one.g.Held().IsAll() || len(s.lost) != 1 {
			t.Errorf("one holds %s, and has lost at %v", one.g.Held(), s.lost)
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
		w.within(20*time.Second, 8, "a panic")
	})
}

type rude struct{}

func (rude) Gain(context.Context, shard.Set) error            { return nil }
func (rude) Lose(context.Context, shard.Set, func(shard.Set)) { panic("enough") }

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
