package flow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// outcome is the result of a resumed fiber.
type outcome struct {
	Log  string
	Took time.Duration
	Err  string
}

// resume starts a fiber with a saved position, and waits for its end.
func resume(t *testing.T, fl *Flow[packet], opt StartOptions) outcome {
	t.Helper()
	e, began, p := NewEngine(EngineOptions{}), time.Now(), &packet{}
	defer e.Close(context.Background())
	err := start(t, e, fl, p, opt).Wait(t.Context())
	w := outcome{Log: strings.Join(p.log, " "), Took: time.Since(began)}
	if err != nil {
		w.Err = err.Error()
	}
	return w
}

// Downtime counts: the deadline of a step counts from its first entry, and a wait from its start.
func TestDeadlinesCountFromTheFirstEntry(t *testing.T) {
	t.Parallel()
	s := time.Second
	next := func(_ context.Context, f *fib) Next {
		f.Packet.note("b")
		return f.Await(Until(f.Entered().Add(4 * s)))
	}
	visits := func(_ context.Context, f *fib) Next {
		n := 0
		if _, err := f.Checkpoint(&n); err != nil {
			return f.Fail(err)
		}
		if f.Packet.note("a"); n > 0 {
			return f.Await(Until(f.Entered().Add(4 * s)))
		}
		if err := f.SetCheckpoint(1); err != nil {
			return f.Fail(err)
		}
		return f.Delay(10 * s).Then("a")
	}
	handler := func(_ context.Context, f *fib) Next { f.Packet.note("late"); return f.End() }
	for _, c := range []struct {
		reason string
		down   time.Duration // from 5 s after the start on
		nodes  []Node[packet]
		want   outcome
	}{
		{
			"of the step ahead", 0,
			[]Node[packet]{Step("a", then(10*s, "")), Step("b", next, Deadline(5*s))},
			outcome{"b", 9 * s, ""},
		},
		{
			"down for a while", 3 * s,
			[]Node[packet]{Step("a", then(10*s, "")), Step("b", next, Deadline(5*s))},
			outcome{"b", 6 * s, ""},
		},
		{
			"down beyond the delay", time.Hour,
			[]Node[packet]{Step("a", then(10*s, "")), Step("b", next, Deadline(5*s))},
			outcome{"b", 4 * s, ""},
		},
		{"of itself", 0, []Node[packet]{Step("a", visits, Deadline(11*s))}, outcome{"a", 9 * s, ""}},
		{
			"of itself, down beyond the delay", time.Hour,
			[]Node[packet]{Step("a", visits, Deadline(11*s))},
			outcome{"a", 4 * s, ""},
		},
		{"of the step that delays", 0, []Node[packet]{
			Step("a", then(10*s, ""), Deadline(8*s), OnError("h")), Step("b", next), Detour("h", handler),
		}, outcome{"late", 3 * s, ""}},
		{
			"of the step that delays, down beyond it", time.Hour,
			[]Node[packet]{Step("a", then(10*s, ""), Deadline(8*s), OnError("h")), Step("b", next), Detour("h", handler)},
			outcome{"late", 0, ""},
		},
		{
			"of a step that delays until its deadline, down beyond it", time.Hour,
			[]Node[packet]{Step("a", then(10*s, ""), Deadline(12*s), OnError("h")), Step("b", next), Detour("h", handler)},
			outcome{"b", 4 * s, ""},
		},
		{"of the last step", 0, []Node[packet]{Step("a", then(10*s, ""))}, outcome{"", 5 * s, ""}},
	} {
		synctest.Test(t, func(t *testing.T) {
			opt := StartOptions{Key: "k", Positions: &Memory{}}
			fl, e := New("f", c.nodes...), NewEngine(EngineOptions{})
			start(t, e, fl, &packet{}, opt)
			time.Sleep(5 * s)
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(c.down)
			if diff := cmp.Diff(c.want, resume(t, fl, opt)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// then delays, then goes to a step.
func then(d time.Duration, step string) fstep {
	return func(_ context.Context, f *fib) Next { return f.Delay(d).Then(step) }
}

// A restart may cut an await short. Its deadline then applies to this await, not to a later one of the step.
func TestARestartedDeadlineIsForOneAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opt := StartOptions{Key: "k", Positions: &Memory{}}
		skip := false
		await := func(_ context.Context, f *fib) Next {
			f.Packet.note("await")
			return f.Await(Until(f.Entered().Add(50*time.Second)), Timeout(time.Minute))
		}
		done := Done(func(context.Context, *fib) (bool, error) { was := skip; skip = false; return was, nil })
		fl := New("f", Step("a", await, done), Step("b", func(_ context.Context, f *fib) Next {
			if f.Packet.n++; f.Packet.n == 1 {
				return f.Delay(time.Hour).Then("a")
			}
			return f.Next()
		}))
		e := NewEngine(EngineOptions{})
		start(t, e, fl, &packet{}, opt)
		synctest.Wait()
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		skip = true
		if diff := cmp.Diff(outcome{"await", time.Hour + 50*time.Second, ""}, resume(t, fl, opt)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A delay leads to its original step, even if the flow has a new step in between.
func TestADelayKeepsItsTarget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opt := StartOptions{Key: "k", Positions: &Memory{}}
		e := NewEngine(EngineOptions{})
		start(t, e, New("f", Step("a", then(time.Minute, "")), note("c")), &packet{}, opt)
		synctest.Wait()
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := resume(t, New("f", Step("a", stay), note("b"), note("c")), opt); got != (outcome{"c", time.Minute, ""}) {
			t.Errorf("the outcome is %+v", got)
		}
	})
}

// The deadline of a step may pass just before the step runs again, or before a detour returns to it.
func TestTheDeadlineOfAStepHasPassed(t *testing.T) {
	t.Parallel()
	late := Step("late", func(_ context.Context, f *fib) Next { f.Packet.note("late"); return f.Next() })
	for _, c := range []struct {
		reason string
		nodes  []Node[packet]
		want   outcome
	}{
		{"when it would be retried", []Node[packet]{
			Step("a", func(_ context.Context, f *fib) Next { return f.Retry(time.Minute).Else("late") }, Deadline(time.Minute)),
			late,
		}, outcome{"late", time.Minute, ""}},
		{"a detour leads back to it, which handles its errors", []Node[packet]{
			Step("a", func(_ context.Context, f *fib) Next { return f.Await() }, Deadline(time.Minute), OnError("d")),
			Detour("d", func(_ context.Context, f *fib) Next { f.Packet.note("d"); return f.Next() }),
		}, outcome{"d", time.Minute, "f/a: deadline of the step: timed out"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			if diff := cmp.Diff(c.want, resume(t, New("f", c.nodes...), StartOptions{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// If Done skips an error handler, the following step does not get the error. An error of Done is retried.
func TestASkippedHandlerKeepsItsError(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		asked := 0
		fl := New("f", Step("a", func(_ context.Context, f *fib) Next { return f.Fail(errBad) }, OnError("h")),
			Step("h", stay, Retry(Backoff{Base: time.Second, Attempts: 2}), Done(func(_ context.Context, f *fib) (bool, error) {
				if asked++; asked == 1 {
					return false, errBad
				}
				return true, nil
			})),
			Step("b", func(_ context.Context, f *fib) Next {
				if f.Err() != nil {
					t.Errorf("the step after it finds %v", f.Err())
				}
				return f.Next()
			}))
		if err := start(t, e, fl, &packet{}, StartOptions{}).Wait(t.Context()); err != nil || asked != 2 {
			t.Errorf("%v, asked %d times", err, asked)
		}
	})
}

// A condition without events and without an interval is invalid.
func TestAFuncWithoutAnInterval(t *testing.T) {
	t.Parallel()
	never := func(context.Context) (bool, error) { return false, nil }
	for _, c := range []struct {
		reason string
		waits  []Wait
		want   error
	}{
		{"a negative interval", []Wait{Func(never, -1)}, ErrInvalid},
		{"no interval", []Wait{Func(never, 0), Func(never, 0)}, ErrInvalid},
		{"no condition", []Wait{Func(nil, time.Second)}, ErrInvalid},
		{"no interval, and a limit", []Wait{Func(never, 0), Timeout(time.Second)}, ErrTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := NewEngine(EngineOptions{})
			defer e.Close(context.Background())
			fl := New("f", Step("a", func(_ context.Context, f *fib) Next { return f.Await(c.waits...) }))
			h := start(t, e, fl, &packet{}, StartOptions{})
			time.Sleep(time.Minute)
			if err := h.Err(); !errors.Is(err, c.want) {
				t.Errorf("%s: it is %v with %v, want %v", c.reason, h.Status(), err, c.want)
			}
		})
	}
}
