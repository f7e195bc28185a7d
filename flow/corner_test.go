package flow

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// An Undo from a step before the first one with an Undo completes at once. A failed Undo names its step.
func TestEmptyAndFailedUndo(t *testing.T) {
	t.Parallel()
	park := func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour).Then("park") }
	undo := func(fn fstep) Option { return Undo(fn) }
	kids := func(context.Context, *fib) ([]Child, error) { return nil, errBad }
	cases := []struct {
		reason string
		flow   *Flow[packet]
		want   string // "" is none
		as     error
	}{
		{"no step with an undo was started", New("f", Step("park", park),
			Step("b", stay, undo(func(context.Context, *fib) Next { panic("b was never started") }))), "", nil},
		{
			"the children to undo are unknown", New("f", Fork("kids", kids, OnError("park")), Step("park", park)),
			"f/undo/kids: bad", errBad,
		},
		{"an undo panics", New("f", Step("a", stay, undo(func(context.Context, *fib) Next { panic(errBad) })),
			Step("park", park)), "f/undo/a: panic: bad", errBad},
		{"an undo has no outcome", New("f", Step("a", stay, undo(func(context.Context, *fib) Next { return Next{} })),
			Step("park", park)), "f/undo/a: step returned the zero Next", errNoOutcome},
		{
			"an undo goes to a step without an undo", New("f",
				Step("a", stay, undo(func(_ context.Context, f *fib) Next { return f.Goto("park") })), Step("park", park)),
			`f/undo/a: cannot go to "park": unknown step`, errUnknownStep,
		},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			opt := StartOptions{Key: "ns/x", Positions: &Memory{}}
			start(t, e, c.flow, &packet{}, opt)
			synctest.Wait()
			h, err := c.flow.Undo(t.Context(), e, &packet{}, opt)
			if err != nil {
				t.Fatal(err)
			}
			err = h.Wait(t.Context())
			if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want || !errors.Is(err, c.as)) {
				t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
			}
		})
	}
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		fl := New("f", note("a"), Step("b", stay, undo(func(context.Context, *fib) Next { panic("b was never started") })))
		h, err := fl.Undo(t.Context(), e, &packet{}, StartOptions{From: "a"})
		if err != nil || h.Wait(t.Context()) != nil {
			t.Error("from a step before the first undo:", err, h.Err())
		}
	})
}

func TestADelayForEver(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		h := start(t, e, New("f", Step("a", func(_ context.Context, f *fib) Next { return f.Delay(math.MaxInt64) })),
			&packet{}, StartOptions{Key: "k", Positions: &Memory{}})
		time.Sleep(100 * 365 * 24 * time.Hour)
		synctest.Wait()
		if got := h.Status(); got != Parked {
			t.Errorf("after a century it is %v: %v", got, h.Err())
		}
	})
}

func TestStatusText(t *testing.T) {
	t.Parallel()
	for s := Ready; s <= Cancelled; s++ {
		raw, err := json.Marshal(s)
		var back Status
		if err != nil || json.Unmarshal(raw, &back) != nil || back != s {
			t.Errorf("%v became %s and %v, %v", s, raw, back, err)
		}
	}
	var s Status
	if err := json.Unmarshal([]byte(`"asleep"`), &s); err == nil {
		t.Errorf("read as %v", s)
	}
}

func TestACopyOfAPositionSharesNothing(t *testing.T) {
	t.Parallel()
	p := &Position{Flow: "f", Step: "a", Checkpoint: json.RawMessage(`[1]`), Begun: time.Unix(1, 0)}
	c := p.DeepCopy()
	if diff := cmp.Diff(p, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Checkpoint[1] = '2'; string(p.Checkpoint) != `[1]` {
		t.Error("they share the checkpoint")
	}
	if (*Position)(nil).DeepCopy() != nil {
		t.Error("a copy of nil")
	}
}

// A failure is logged once as a warning, with all its details. The end of other fibers is logged at debug level.
func TestEndsAreLogged(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]int{slog.LevelWarn: 1, slog.LevelDebug: 3} {
		var out bytes.Buffer
		bubble(t, EngineOptions{Workers: 1, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))},
			func(t *testing.T, e *Engine) {
				bad := func(_ context.Context, f *fib) Next { return f.Fail(errBad) }
				start(t, e, New("good", note("a")), &packet{}, StartOptions{}).Wait(t.Context())
				start(t, e, New("f", note("a"), children("kids", []fstep{bad})), &packet{},
					StartOptions{Key: "ns/x"}).Wait(t.Context())
			})
		text := out.String()
		if got := strings.Count(text, `msg="fiber ended"`); got != want {
			t.Errorf("%d lines at level %v, want %d:\n%s", got, level, want, text)
		}
		for _, part := range []string{
			"level=WARN", "path=f/kids", "key=ns/x", "status=failed", `error="f/kids[0]/work: bad"`,
			`trail="a:next kids:fork"`,
		} {
			if !strings.Contains(text, part) {
				t.Errorf("the log at level %v lacks %s:\n%s", level, part, text)
			}
		}
	}
}

// A failed step is logged even if the fiber handles the failure, because no caller sees it.
func TestHandledFailuresAreLogged(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	bubble(t, EngineOptions{Workers: 1, Logger: slog.New(slog.NewTextHandler(&out, nil))}, func(t *testing.T, e *Engine) {
		bad := func(_ context.Context, f *fib) Next { return f.Fail(errBad) }
		start(t, e, New("f", Step("a", bad, Retry(Backoff{Base: time.Second, Attempts: 2}), OnError("b")), note("b")),
			&packet{},
			StartOptions{Key: "ns/x"}).Wait(t.Context())
	})
	for _, part := range []string{
		`msg="step failed and is retried" path=f/a key=ns/x error=bad attempts=1 wait=`,
		`msg="step failed; continuing at another step" path=f/a key=ns/x error="f/a: bad"`,
	} {
		if !strings.Contains(out.String(), "level=WARN "+part) {
			t.Errorf("the log lacks %s:\n%s", part, &out)
		}
	}
}

// A step that ends with the error of its context because its fiber is preempted has not failed: no warning, and no
// other step follows.
func TestPreemptionIsNoFailure(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]int{slog.LevelInfo: 0, slog.LevelDebug: 1} {
		var out bytes.Buffer
		handled := false
		bubble(t, EngineOptions{Workers: 1, Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))},
			func(t *testing.T, e *Engine) {
				wait := func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Fail(ctx.Err()) }
				other := func(_ context.Context, f *fib) Next { handled = true; return f.Next() }
				fl := New("f", Step("a", wait, Retry(Backoff{Base: time.Second}), OnError("b")), Step("b", other))
				first := start(t, e, fl, &packet{}, StartOptions{Key: "ns/x"})
				synctest.Wait()
				next := start(t, e, New("g", note("a")), &packet{}, StartOptions{Key: "ns/x"})
				if err := next.Wait(t.Context()); err != nil || !errors.Is(first.Err(), ErrPreempted) {
					t.Errorf("they ended with %v and %v", err, first.Err())
				}
			})
		const line = `level=DEBUG msg="step cut short: the fiber is cancelled" path=f/a key=ns/x cause="preempted by `
		if got := strings.Count(out.String(), line); got != want || handled || strings.Contains(out.String(), "WARN") {
			t.Errorf("level %v: %d lines, want %d; the error handler ran: %v\n%s", level, got, want, handled, &out)
		}
	}
}

// A panic after the preemption is a warning, since no caller sees it.
func TestPanicAfterPreemption(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	bubble(t, EngineOptions{Workers: 1, Logger: slog.New(slog.NewTextHandler(&out, nil))}, func(t *testing.T, e *Engine) {
		bad := func(ctx context.Context, _ *fib) Next { <-ctx.Done(); panic("bad") }
		h := start(t, e, New("f", Step("a", bad)), &packet{}, StartOptions{Key: "ns/x"})
		synctest.Wait()
		h.Cancel(nil)
		_ = h.Wait(t.Context())
	})
	if !strings.Contains(out.String(), `level=WARN msg="step panicked after the fiber was cancelled" path=f/a key=ns/x`) {
		t.Errorf("got:\n%s", &out)
	}
}

func TestChainingNeedsTheCurrentFiber(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		h := start(t, e, New("f", note("a")), &packet{}, StartOptions{}) // without a key
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := New("f", note("a")).Start(t.Context(), e, &packet{}, StartOptions{IfCurrent: h}); !errors.Is(err,
			ErrNotCurrent) {
			t.Errorf("after a fiber without a key: %v", err)
		}
	})
}
