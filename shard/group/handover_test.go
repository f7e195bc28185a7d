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

// script is a participant whose work on one slot continues until it is cancelled, or finished.
type script struct {
	linger int
	over   chan struct{} // closed by finish; nil: the work does not end by itself
	gained atomic.Int32
	fails  int

	mu   sync.Mutex
	lost []time.Time
	ctx  context.Context // of the last Lose
	off  error           // with which the work was cut off
}

// finish ends the work.
func (s *script) finish() { close(s.over) }

// cut returns the cause with which the work was cut off, or nil.
func (s *script) cut() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.off
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
		select {
		case <-s.over:
		case <-ctx.Done():
			s.mu.Lock()
			s.off = context.Cause(ctx)
			s.mu.Unlock()
		}
	}
}

// TestMoveWaitsForWork: an idle slot moves at once. A slot with work in progress moves when that work has ended, and has
// ten minutes for it. A member that leaves cuts the work off after the drain bound, also if the slot was moving before.
func TestMoveWaitsForWork(t *testing.T) {
	const after = 5 * time.Minute // the end of the work, or of the member
	for name, tc := range map[string]struct {
		end  func(one *process, s *script)
		held time.Duration // how long the busy slot stays after that
		want error         // with which the context of the work ends
	}{
		"WorkEnds":     {func(_ *process, s *script) { s.finish() }, 0, nil},
		"MemberLeaves": {func(one *process, _ *script) { one.stop() }, 10 * time.Second, ErrMoved},
		"WorkHangs":    {func(*process, *script) {}, 10*time.Minute - after, ErrMoved},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				four := Options{Layout: shard.Layout{Slots: 4}}
				s := &script{linger: 3, over: make(chan struct{})}
				one := w.start("one", random(), four, s)
				w.play(3 * time.Second)
				two := w.start("two", random(), four)
				w.play(time.Second)
				if got := two.g.Held().String(); got != "2" {
					t.Fatalf("two holds %q, want the idle slot", got)
				}
				w.play(after - time.Second)
				if err := one.g.Fence(3); err != nil || s.cut() != nil {
					t.Fatalf("work in progress may send: %v; it was cut off with %v", err, s.cut())
				}
				tc.end(one, s)
				if tc.held > 0 {
					w.play(tc.held - 2*time.Second)
					if two.g.Held().Holds(3) || s.cut() != nil {
						t.Errorf("before the bound two holds %s, the work was cut off with %v", two.g.Held(), s.cut())
					}
					w.play(2 * time.Second)
				}
				w.play(time.Second)
				if !two.g.Held().Holds(3) || !errors.Is(s.cut(), tc.want) {
					t.Errorf("two holds %s, the work was cut off with %v", two.g.Held(), s.cut())
				}
			})
		})
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
