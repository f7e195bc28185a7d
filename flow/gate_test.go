package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func sleeper(d time.Duration) *Flow[packet] {
	return New("sleeper", Step("a", func(ctx context.Context, f *fib) Next { f.Packet.n++; return f.Delay(d) }))
}

func TestCoalesceRunsOnceMore(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		opt := StartOptions{Key: "k", Mode: Coalesce}
		p := []*packet{{}, {}, {}}
		a := start(t, e, sleeper(time.Second), p[0], opt)
		synctest.Wait()
		b := start(t, e, sleeper(time.Second), p[1], opt)
		c := start(t, e, sleeper(time.Second), p[2], opt)
		if err := b.Wait(t.Context()); !errors.Is(err, ErrCoalesced) {
			t.Errorf("the middle one: %v", err)
		}
		if err := errors.Join(a.Wait(t.Context()), c.Wait(t.Context())); err != nil {
			t.Error(err)
		}
		if p[0].n != 1 || p[1].n != 0 || p[2].n != 1 {
			t.Errorf("ran %d %d %d", p[0].n, p[1].n, p[2].n)
		}
	})
}

func TestPreemptAfterCoalesceStopsTheRunningOneToo(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		a := start(t, e, sleeper(time.Hour), &packet{}, StartOptions{Key: "k"})
		synctest.Wait()
		b := start(t, e, sleeper(time.Hour), &packet{}, StartOptions{Key: "k", Mode: Coalesce})
		c := start(t, e, sleeper(0), &packet{}, StartOptions{Key: "k"})
		if err := c.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if !errors.Is(a.Err(), ErrPreempted) || !errors.Is(b.Err(), ErrPreempted) {
			t.Error(a.Err(), b.Err())
		}
	})
}

func TestASuccessorCancelledWhileItWaitsLeavesTheKeyToThePredecessor(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		leave := make(chan struct{})
		a := start(t, e, New("f", Step("a", func(ctx context.Context, f *fib) Next { <-leave; return f.Next() })), &packet{},
			StartOptions{Key: "k"})
		synctest.Wait()
		b := start(t, e, sleeper(0), &packet{}, StartOptions{Key: "k"})
		b.Cancel(errBad)
		if err := b.Wait(t.Context()); !errors.Is(err, errBad) {
			t.Error(err)
		}
		if h, ok := e.Find("k"); !ok || h != a {
			t.Error("the key is not the predecessor's")
		}
		if _, err := sleeper(0).Start(t.Context(), e, &packet{}, StartOptions{Key: "k", Mode: SkipIfBusy}); !errors.Is(err,
			ErrBusy) {
			t.Errorf("busy key: %v", err)
		}
		c := start(t, e, sleeper(0), &packet{}, StartOptions{Key: "k"})
		synctest.Wait()
		if c.Status() != Parked {
			t.Errorf("C is %v beside A", c.Status())
		}
		close(leave)
		if err := c.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestIfCurrentChainsFailureSteps(t *testing.T) {
	t.Parallel()
	for _, superseded := range []bool{false, true} {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			repaired := &packet{}
			var err error
			var chained Handle
			fl := New("f", children("kids", []fstep{func(ctx context.Context, f *fib) Next { return f.Delay(time.Second) }}),
				Step("a", func(ctx context.Context, f *fib) Next { return f.Fail(errBad) }))
			h := start(t, e, fl, &packet{}, StartOptions{Key: "k", OnEnd: func(r Result) {
				chained, err = New("failure", note("repair")).Start(context.Background(), e, repaired,
					StartOptions{IfCurrent: r.Handle})
			}})
			synctest.Wait()
			if superseded {
				start(t, e, sleeper(0), &packet{}, StartOptions{Key: "k"})
			}
			h.Wait(t.Context())
			if superseded {
				if !errors.Is(err, ErrNotCurrent) {
					t.Errorf("a superseded fiber has chained: %v", err)
				}
				return
			}
			if err != nil || chained.Key() != "k" {
				t.Fatal(err, chained.Key())
			}
			if err := chained.Wait(t.Context()); err != nil || len(repaired.log) != 1 {
				t.Error(err, repaired.log)
			}
		})
	}
}

func TestAStuckPredecessorIsReportedWithItsStack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		e := NewEngine(EngineOptions{
			Workers: 1, Grace: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		leave := make(chan struct{})
		a := start(t, e,
			New("a", children("kids", []fstep{func(ctx context.Context, f *fib) Next { stubborn(leave); return f.Next() }})),
			&packet{}, StartOptions{Key: "ns/k"})
		synctest.Wait()
		b := start(t, e, sleeper(0), &packet{}, StartOptions{Key: "ns/k"})
		time.Sleep(4 * time.Minute) // reported after 1, 2 and 4
		synctest.Wait()
		reports := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(reports) != 3 || !strings.Contains(reports[0], " for=1m0s ") || !strings.Contains(reports[2], " for=4m0s ") {
			t.Fatalf("%d reports:\n%s", len(reports), &log)
		}
		for _, want := range []string{`msg="predecessor does not stop"`, " path=a/kids ", " waiting=", "flow.stubborn"} {
			if !strings.Contains(reports[0], want) {
				t.Errorf("the report has no %s:\n%s", want, reports[0])
			}
		}
		if strings.Contains(reports[0], `\ngoroutine `) {
			t.Errorf("the stack is that of several goroutines:\n%s", reports[0])
		}
		if b.Status() != Parked {
			t.Errorf("the successor is %v", b.Status())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Close(ctx); !errors.Is(err, ErrStuck) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "a/kids[0]/work") {
			t.Errorf("Close with a stuck fiber: %v", err)
		}
		close(leave)
		if err := e.Close(t.Context()); err != nil || !a.Status().Ended() {
			t.Error(err)
		}
	})
}

func stubborn(leave chan struct{}) { <-leave }

func TestAFloodOfOneGroupDelaysAnotherByOneTurn(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		var order []string
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next { order = append(order, f.Key()); return f.Next() }))
		hold := make(chan struct{})
		start(t, e, New("hold", Step("a", func(ctx context.Context, f *fib) Next { <-hold; return f.Next() })), &packet{},
			StartOptions{Key: "big/hold"})
		synctest.Wait()
		for i := range 1000 {
			start(t, e, fl, &packet{}, StartOptions{Key: fmt.Sprintf("big/%d", i)})
		}
		start(t, e, fl, &packet{}, StartOptions{Key: "small/one"})
		close(hold)
		synctest.Wait()
		if len(order) != 1001 || order[1] != "small/one" {
			t.Errorf("%d ran, the first are %v", len(order), order[:3])
		}
	})
}

// TestManySubgroupsDelayAnotherGroupByOneTurn: a group gets as many turns as another one, however many subgroups it
// has.
func TestManySubgroupsDelayAnotherGroupByOneTurn(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		var order []string
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next { order = append(order, f.Key()); return f.Next() }))
		hold := make(chan struct{})
		start(t, e, New("hold", Step("a", func(ctx context.Context, f *fib) Next { <-hold; return f.Next() })), &packet{},
			StartOptions{Key: "big/hold"})
		synctest.Wait()
		for i := range 3 {
			start(t, e, fl, &packet{}, StartOptions{Key: fmt.Sprintf("big/flood-%d", i), Subgroup: "flood"})
		}
		for i := range 3 {
			start(t, e, fl, &packet{}, StartOptions{Key: fmt.Sprintf("big/%d", i), Subgroup: fmt.Sprint("s", i)})
		}
		for i := range 2 {
			start(t, e, fl, &packet{}, StartOptions{Key: fmt.Sprintf("small/%d", i)})
		}
		var seen []string
		for i := range e.Fibers() {
			seen = append(seen, i.Group+"/"+i.Subgroup)
		}
		if len(seen) != 9 || seen[1] != "big/flood" || seen[8] != "small/" {
			t.Errorf("groups: %v", seen)
		}
		close(hold)
		synctest.Wait()
		want := []string{"big/flood-0", "small/0", "big/0", "small/1", "big/1", "big/2", "big/flood-1", "big/flood-2"}
		if !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if len(e.sched.queue.groups) != 0 {
			t.Errorf("left over: %v", e.sched.queue.groups)
		}
	})
}

func TestALongLineLetsOthersRun(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		steps, seen := 0, -1
		began := make(chan struct{})
		var once bool
		spin := New("spin", Step("a", func(ctx context.Context, f *fib) Next {
			if !once {
				once = true
				close(began)
				for e.sched.queued.Load() == 0 { // the other one is waiting
				}
			}
			if steps++; steps < 10_000 {
				return f.Goto("b")
			}
			return f.End()
		}), Step("b", func(ctx context.Context, f *fib) Next { return f.Goto("a") }))
		h := start(t, e, spin, &packet{}, StartOptions{})
		<-began
		start(t, e, New("other", Step("a", func(ctx context.Context, f *fib) Next { seen = steps; return f.Next() })),
			&packet{}, StartOptions{Group: "other"})
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if seen < 0 || seen > 2*quantum {
			t.Errorf("the other one ran after %d steps", seen)
		}
	})
}

func TestPerGroupLeavesWorkersToOthers(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 4, PerGroup: 2}, func(t *testing.T, e *Engine) {
		running := 0
		leave := make(chan struct{})
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next { <-leave; return f.Next() }))
		for i := range 6 {
			start(t, e, fl, &packet{}, StartOptions{Key: fmt.Sprintf("big/%d", i)})
		}
		synctest.Wait()
		for i := range e.Fibers() {
			if i.Status == Running {
				running++
			}
		}
		p := &packet{}
		if err := start(t, e, New("g", note("a")), p, StartOptions{Key: "small/one"}).Wait(t.Context()); err != nil ||
			running != 2 {
			t.Errorf("%v, %d of the group ran at a time", err, running)
		}
		close(leave)
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestDrainWaitsAndRefuses(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		h := start(t, e, sleeper(time.Minute), &packet{}, StartOptions{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := e.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a drain beyond its deadline: %v", err)
		}
		if _, err := sleeper(0).Start(t.Context(), e, &packet{}, StartOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Start while draining: %v", err)
		}
		if err := e.Drain(t.Context()); err != nil || h.Status() != Completed {
			t.Error(err, h.Status())
		}
	})
}
