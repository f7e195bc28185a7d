package flow

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// unreadable is an error whose Error method panics for a nil pointer.
type unreadable struct{ text string }

func (u *unreadable) Error() string { return u.text }

// secret cannot be encoded as JSON.
type secret struct{ err error }

func (s secret) MarshalJSON() ([]byte, error) {
	if s.err == nil {
		panic(errBad)
	}
	return nil, s.err
}

// Every mistake of a step fails its fiber with an error that names flow, step and key, with and without Positions. The
// key and the worker are free afterwards.
func TestMistakesOfSteps(t *testing.T) {
	t.Parallel()
	keep := func(v any) fstep {
		return func(ctx context.Context, f *fib) Next {
			if err := f.SetCheckpoint(v); err != nil {
				return f.Fail(err)
			}
			return f.Next()
		}
	}
	exit := runtime.Goexit
	var none *unreadable
	cases := []struct {
		reason string
		step   fstep
		opts   []Option
		want   error  // nil is a *PanicError
		text   string // part of it
	}{
		{"a panic", func(context.Context, *fib) Next { panic("no") }, nil, nil, "panic: no"},
		{"a panic of an error", func(context.Context, *fib) Next { panic(errBad) }, nil, errBad, "panic: bad"},
		{
			"a nil packet", func(_ context.Context, f *fib) Next { f.Packet = nil; f.Packet.note("x"); return f.Next() }, nil,
			nil, "nil pointer",
		},
		{
			"the end of its goroutine", func(context.Context, *fib) Next { exit(); return Next{} }, nil, errGoexit,
			"ended its goroutine",
		},
		{"no outcome", func(context.Context, *fib) Next { return Next{} }, nil, errNoOutcome, "the zero Next"},
		{
			"no outcome, but a next step", func(context.Context, *fib) Next { return Next{}.Then("a") }, nil, errNoOutcome,
			"the zero Next",
		},
		{
			"a failure without an error", func(_ context.Context, f *fib) Next { return f.Fail(nil) }, nil, errAny,
			"without an error",
		},
		{
			"an error that cannot be printed", func(_ context.Context, f *fib) Next { return f.Fail(none) }, nil, nil,
			"Error method of a *flow.unreadable",
		},
		{"a wait for nothing", func(_ context.Context, f *fib) Next { return f.Await(nil) }, nil, ErrInvalid, "wait is nil"},
		{
			"a suspension without a token",
			func(_ context.Context, f *fib) Next { return f.Suspend(Token{}) }, nil, errStaleToken,
			"token is stale",
		},
		{"an unknown step", func(_ context.Context, f *fib) Next { return f.Goto("x") }, nil, errUnknownStep, `"x"`},
		{"the step of no name", func(_ context.Context, f *fib) Next { return f.Goto("") }, nil, errUnknownStep, `""`},
		{
			"an unknown next step", func(_ context.Context, f *fib) Next { return f.Delay(time.Second).Else("x") },
			nil, errUnknownStep, `"x"`,
		},
		{
			"a fork without children", func(_ context.Context, f *fib) Next { return f.Fork([]Child{{}}) }, nil, ErrInvalid,
			"child 0 is empty",
		},
		{"a quorum out of reach", func(_ context.Context, f *fib) Next {
			return f.Fork([]Child{New("child", note("x")).Child("", f.Packet)}, Quorum(2))
		}, nil, ErrInvalid, "quorum of 2 with 1"},
		{"a checkpoint without JSON", keep(make(chan int)), nil, errJSON, "cannot set checkpoint"},
		{"a checkpoint whose encoder fails", keep(secret{errBad}), nil, errBad, "cannot set checkpoint"},
		{"a checkpoint that panics", keep(secret{}), nil, errBad, "panic: bad"},
		{"a type other than the saved one", func(ctx context.Context, f *fib) Next {
			if err := f.SetCheckpoint("text"); err != nil {
				return f.Fail(err)
			}
			var n int
			if _, err := f.Checkpoint(&n); err != nil {
				return f.Fail(err)
			}
			return f.Next()
		}, nil, errJSON, "cannot read checkpoint"},
		{
			"it blocks until its deadline", func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Fail(ctx.Err()) },
			[]Option{Deadline(time.Minute)},
			ErrTimeout, "deadline of the step",
		},
	}
	for _, c := range cases {
		for _, store := range []Positions{nil, &Memory{}} {
			bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
				ends := 0
				opt := StartOptions{Key: "ns/x", Positions: store, OnEnd: func(Result) { ends++ }}
				h := start(t, e, New("f", Group("g", Step("a", c.step, c.opts...))), &packet{}, opt)
				err := h.Wait(t.Context())
				at, ok := errors.AsType[*StepError](err)
				if !ok || at.Path != "f/g/a" || at.Key != "ns/x" || !strings.HasPrefix(err.Error(), "f/g/a: ") {
					t.Fatalf("%s: got %#v, want an error of f/g/a for ns/x", c.reason, err)
				}
				p, panicked := errors.AsType[*PanicError](err)
				json := strings.Contains(err.Error(), "json")
				switch {
				case c.want == nil && (!panicked || p.Path != "f/g/a" || p.Key != "ns/x" || len(p.Stack) == 0),
					c.want == errJSON && !json, c.want != nil && c.want != errAny && c.want != errJSON && !errors.Is(err, c.want),
					!strings.Contains(err.Error(), c.text):
					t.Errorf("%s: got %v", c.reason, err)
				}
				if h.Status() != Failed || ends != 1 {
					t.Errorf("%s: %v, %d callbacks", c.reason, h.Status(), ends)
				}
				if store != nil {
					if p, ok, _ := store.Load(t.Context(), "ns/x"); !ok || !p.Ended || p.Err != err.Error() {
						t.Errorf("%s: saved %+v", c.reason, p)
					}
				}
				if err := start(t, e, New("g", note("x")), &packet{},
					StartOptions{Key: "ns/x", Mode: SkipIfBusy}).Wait(t.Context()); err != nil {
					t.Errorf("%s: the key or the worker is not free: %v", c.reason, err)
				}
			})
		}
	}
}

var (
	errAny  = errors.New("any")
	errJSON = errors.New("of encoding/json")
	_       = json.Marshaler(secret{})
)

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		good := New("f", note("a"))
		cases := []struct {
			reason string
			engine *Engine
			flow   *Flow[packet]
			opt    StartOptions
			want   error
			text   string
		}{
			{
				"an empty flow", e, New[packet]("f"),
				StartOptions{Key: "ns/x"},
				ErrInvalid,
				`cannot start "f" for "ns/x": cannot build flow "f": invalid flow: no step in the line`,
			},
			{
				"no engine", nil, good,
				StartOptions{Key: "ns/x"},
				ErrInvalid,
				`cannot start "f" for "ns/x": invalid flow: no engine`,
			},
			{
				"positions without a key", e, good,
				StartOptions{Positions: &Memory{}},
				ErrInvalid,
				`cannot start "f": invalid flow: positions need a key`,
			},
			{
				"an unknown first step", e, good,
				StartOptions{Key: "ns/x", From: "b"},
				errUnknownStep,
				`cannot start "f" for "ns/x": cannot begin at "b": unknown step`,
			},
		}
		for _, c := range cases {
			if _, err := c.flow.Start(t.Context(), c.engine, &packet{}, c.opt); !errors.Is(err, c.want) ||
				err.Error() != c.text {
				t.Errorf("%s: got %v", c.reason, err)
			}
		}
		if _, err := New[packet]("f").Undo(t.Context(), e, &packet{}, StartOptions{Key: "ns/x"}); !errors.Is(err,
			ErrInvalid) {
			t.Errorf("the undoing of an empty flow: %v", err)
		}
		if e.Live() != 0 {
			t.Error("a refused fiber is alive")
		}
	})
}

// Calls for a fiber that has ended change nothing, and their results say so.
func TestCallsForAnEndedFiber(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		var token Token
		o := &event{}
		fl := New("f", Step("suspend", func(ctx context.Context, f *fib) Next {
			token = f.Token()
			return f.Suspend(token)
		}), Step("await", func(ctx context.Context, f *fib) Next { return f.Await(o) }))
		h := start(t, e, fl, &packet{}, StartOptions{Key: "k"})
		synctest.Wait()
		token.Resume(nil)
		synctest.Wait()
		o.set()
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if token.Resume(1) || token.Fail(errBad) || h.Cancel(nil) {
			t.Error("a fiber that has ended was resumed or cancelled")
		}
		o.set()
		if (Token{}).Resume(nil) || (Handle{}).Cancel(nil) {
			t.Error("no fiber was resumed or cancelled")
		}
		(Waker{}).Wake()
		var late Token
		h = start(t, e, New("f", Step("a", func(ctx context.Context, f *fib) Next {
			late = f.Token()
			return f.Suspend(late)
		})), &packet{}, StartOptions{})
		synctest.Wait()
		h.Cancel(nil)
		if late.Resume(nil) {
			t.Error("a fiber that was cancelled was resumed")
		}
		if err := h.Wait(t.Context()); !errors.Is(err, ErrCancelled) || h.Status() != Cancelled {
			t.Errorf("%v: %v", h.Status(), err)
		}
	})
}

// event is a wait that keeps its waker beyond its end.
type event struct {
	w  Waker
	on bool
}

func (o *event) Watch(w Waker) func()                      { o.w = w; return nil }
func (o *event) Check(context.Context, bool) (bool, error) { return o.on, nil }
func (o *event) set()                                      { o.on = true; o.w.Wake() }

// The error of a cancellation has the key and the path, for any cause.
func TestACancellationNamesItsFiber(t *testing.T) {
	t.Parallel()
	var none *unreadable
	for _, cause := range []error{nil, errBad, none} {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			saved := &Memory{}
			h := start(t, e, sleeper(time.Hour), &packet{}, StartOptions{Key: "ns/x", Positions: saved})
			synctest.Wait()
			h.Cancel(cause)
			err := h.Wait(t.Context())
			c, ok := errors.AsType[*cancelError](err)
			if !ok || c.Key != "ns/x" || !strings.Contains(err.Error(), c.Path+": cancelled: ") ||
				!errors.Is(err, ErrCancelled) {
				t.Errorf("cause %T: got %v", cause, err)
			}
			if p, ok, _ := saved.Load(t.Context(), "ns/x"); !ok || p.Err != err.Error() {
				t.Errorf("cause %T: saved %+v", cause, p)
			}
		})
	}
}

// A step that ignores its context and blocks forever is named by Close. It blocks only its own worker.
func TestCloseNamesABlockedStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(EngineOptions{Workers: 2})
		forever := make(chan struct{})
		h := start(t, e, New("f", Step("block", func(ctx context.Context, f *fib) Next { <-forever; return f.Next() },
			Deadline(time.Second))), &packet{}, StartOptions{Key: "ns/x"})
		if err := start(t, e, sleeper(time.Minute), &packet{}, StartOptions{Key: "ns/y"}).Wait(t.Context()); err != nil {
			t.Errorf("another fiber: %v", err)
		}
		stuck := 0
		for i := range e.Stuck(30 * time.Second) {
			if stuck++; i.Path != "f/block" || i.Key != "ns/x" || i.Status != Running {
				t.Errorf("stuck is %+v", i)
			}
		}
		if stuck != 1 {
			t.Errorf("%d are stuck", stuck)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := e.Close(ctx); !errors.Is(err, ErrStuck) || !strings.Contains(err.Error(), `f/block for "ns/x"`) {
			t.Errorf("got %v", err)
		}
		close(forever)
		if err := e.Close(t.Context()); err != nil || h.Status() != Cancelled {
			t.Errorf("%v, and the fiber is %v", err, h.Status())
		}
	})
}

// The error text of a position is truncated. Otherwise a status with many failed children could become too large.
func TestErrorsInPositionsAreTruncated(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		saved := &Memory{}
		long := errors.New(strings.Repeat("ä", 10_000))
		h := start(t, e, New("f", Step("a", func(_ context.Context, f *fib) Next { return f.Fail(long) })), &packet{},
			StartOptions{Key: "k", Positions: saved})
		if err := h.Wait(t.Context()); !errors.Is(err, long) {
			t.Error(err)
		}
		p, _, _ := saved.Load(t.Context(), "k")
		if len(p.Err) > maxError+len("…") || !strings.HasPrefix(p.Err, "f/a: ää") || !strings.HasSuffix(p.Err, "ä…") {
			t.Errorf("%d bytes: %q", len(p.Err), p.Err)
		}
	})
}
