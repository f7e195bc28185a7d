package flow

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Scenarios in which other engines have failed.

func TestPanicFailsTheFiberWithItsStack(t *testing.T) {
	t.Parallel()
	cause := errBad
	boom := func() { panic(cause) }
	cases := []struct {
		reason string
		step   fstep
		opts   []Option
	}{
		{"in a step", func(context.Context, *fib) Next { boom(); return Next{} }, nil},
		{"in the suspend action", func(ctx context.Context, f *fib) Next {
			return f.Suspend(f.Token(), func(context.Context) error { boom(); return nil })
		}, nil},
		{"in Done", stay, []Option{Done(func(context.Context, *fib) (bool, error) { boom(); return false, nil })}},
		{"in the check of a wait", func(ctx context.Context, f *fib) Next {
			return f.Await(Func(func(context.Context) (bool, error) { boom(); return false, nil }, time.Second))
		}, nil},
		{"in the watch of a wait", func(ctx context.Context, f *fib) Next { return f.Await(badWait{}) }, nil},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
			ends := 0
			h := start(t, e, New("f", Step("a", c.step, append(c.opts, Retry(Backoff{}))...)), &packet{},
				StartOptions{OnEnd: func(Result) { ends++ }})
			err := h.Wait(t.Context())
			var p *PanicError
			if !errors.As(err, &p) || !errors.Is(err, cause) {
				t.Fatalf("%s: %v", c.reason, err)
			}
			if p.Path != "f/a" || !strings.Contains(string(p.Stack), "TestPanicFails") &&
				!strings.Contains(string(p.Stack), "badWait") {
				t.Errorf("%s: path %q, stack:\n%s", c.reason, p.Path, p.Stack)
			}
			if h.Status() != Failed || ends != 1 {
				t.Errorf("%s: %v, %d callbacks", c.reason, h.Status(), ends)
			}
			if err := start(t, e, New("g", note("x")), &packet{}, StartOptions{}).Wait(t.Context()); err != nil {
				t.Errorf("%s: the worker is not free: %v", c.reason, err)
			}
		})
	}
}

var errBad = errors.New("bad")

type badWait struct{}

func (badWait) Watch(Waker) func()                        { panic(errBad) }
func (badWait) Check(context.Context, bool) (bool, error) { return false, nil }

func TestAPanicInACallbackIsContained(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		h := start(t, e, New("f", note("a")), &packet{}, StartOptions{Key: "k", OnEnd: func(Result) { panic("no") }})
		if err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := start(t, e, New("f", note("a")), &packet{},
			StartOptions{Key: "k", Mode: SkipIfBusy}).Wait(t.Context()); err != nil {
			t.Error("the key is not free:", err)
		}
	})
}

func TestAStepThatEndsItsGoroutineFails(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		ends := 0
		exit := runtime.Goexit
		h := start(t, e, New("f", Step("a", func(ctx context.Context, f *fib) Next { exit(); return f.Next() })), &packet{},
			StartOptions{Key: "k", OnEnd: func(Result) { ends++; exit() }})
		if err := h.Wait(t.Context()); !errors.Is(err, errGoexit) || ends != 1 {
			t.Error(err, ends)
		}
		if err := start(t, e, New("g", note("x")), &packet{},
			StartOptions{Key: "k", Mode: SkipIfBusy}).Wait(t.Context()); err != nil {
			t.Error("the worker is not free:", err)
		}
	})
}

func TestEmptyForkJoinsAtOnce(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]Option{nil, {FailFast()}, {First()}, {Limit(1)}} {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			p := &packet{}
			fl := New("f", Fork("kids", func(context.Context, *fib) ([]Child, error) { return nil, nil }, opts...),
				note("after"))
			if err := start(t, e, fl, p, StartOptions{}).Wait(t.Context()); err != nil || len(p.log) != 1 {
				t.Error(err, p.log)
			}
		})
	}
}

// children forks fibers of the given steps, named by their index.
func children(name string, steps []fstep, opts ...Option) Node[packet] {
	return Fork(name, func(context.Context, *fib) ([]Child, error) {
		var kids []Child
		for _, s := range steps {
			kids = append(kids, New("child", Step("work", s)).Child("", &packet{}))
		}
		return kids, nil
	}, opts...)
}

func TestAChildCancelledAloneIsAnError(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		var child Handle
		alone := errors.New("alone")
		h := start(t, e, New("f", children("kids", []fstep{stay, func(ctx context.Context, f *fib) Next {
			child = f.Handle()
			return f.Delay(time.Hour)
		}}), note("after")), &packet{}, StartOptions{})
		synctest.Wait()
		if !child.Cancel(alone) {
			t.Fatal("cancel was refused")
		}
		err := h.Wait(t.Context())
		var fork *ForkError
		if !errors.As(err, &fork) || !errors.Is(err, alone) || !errors.Is(err, ErrCancelled) || h.Status() != Failed {
			t.Fatal(err)
		}
		if got, want := err.Error(), "f/kids[1]/work: cancelled: alone"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestPreemptionRunsTheLastOfThreeAndNeverBesideTheFirst(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		entered, leave := make(chan struct{}), make(chan struct{})
		var inside atomic.Int32
		var ran []string
		var ends sync.Map
		fl := func(name string, work func(ctx context.Context)) *Flow[packet] {
			return New(name, Step("work", func(ctx context.Context, f *fib) Next {
				if inside.Add(1) != 1 {
					t.Errorf("%s runs beside another", name)
				}
				ran = append(ran, name)
				work(ctx)
				inside.Add(-1)
				return f.Next()
			}))
		}
		opt := func(name string) StartOptions {
			return StartOptions{Key: "ns/one", OnEnd: func(r Result) { ends.Store(name, r) }}
		}
		a := start(t, e, fl("A", func(ctx context.Context) {
			close(entered)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrPreempted) {
				t.Errorf("cause of A: %v", context.Cause(ctx))
			}
			<-leave // continues after its context has ended
		}), &packet{}, opt("A"))
		<-entered
		b := start(t, e, fl("B", func(context.Context) {}), &packet{}, opt("B"))
		c := start(t, e, fl("C", func(context.Context) {}), &packet{}, opt("C"))
		if !(a.Epoch() < b.Epoch() && b.Epoch() < c.Epoch()) {
			t.Error("epochs do not rise")
		}
		if err := b.Wait(t.Context()); !errors.Is(err, ErrPreempted) {
			t.Errorf("B: %v", err)
		}
		synctest.Wait()
		if c.Status() != Parked || a.Status() != Running {
			t.Fatalf("C is %v beside A, which is %v", c.Status(), a.Status())
		}
		close(leave)
		if err := c.Wait(t.Context()); err != nil {
			t.Errorf("C: %v", err)
		}
		if got := strings.Join(ran, ""); got != "AC" {
			t.Errorf("ran %s, want AC", got)
		}
		for _, name := range []string{"A", "B", "C"} {
			r, ok := ends.Load(name)
			if !ok || (r.(Result).Err == nil) != (name == "C") {
				t.Errorf("%s ended with %v", name, r)
			}
		}
	})
}

func TestALateWriteOfAPreemptedFiberIsFenced(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		entered, write := make(chan struct{}), make(chan struct{})
		var before, late, detached error
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			before = Fenced(ctx)
			close(entered)
			<-write
			late = Fenced(ctx)
			detached = Fenced(context.WithoutCancel(ctx))
			return f.Next()
		}))
		var kept context.Context
		a := start(t, e, fl, &packet{}, StartOptions{Key: "k"})
		<-entered
		b := start(t, e, New("g", Step("x", func(ctx context.Context, f *fib) Next {
			kept = ctx
			if h, ok := FromContext(ctx); !ok || h != f.Handle() {
				t.Error("FromContext does not find the fiber")
			}
			return f.Next()
		})), &packet{}, StartOptions{Key: "k"})
		close(write)
		if err := a.Wait(t.Context()); !errors.Is(err, ErrPreempted) {
			t.Error(err)
		}
		if err := b.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if before != nil || !errors.Is(late, ErrPreempted) || !errors.Is(detached, ErrPreempted) {
			t.Errorf("before %v, late %v, detached %v", before, late, detached)
		}
		if err := Fenced(kept); !errors.Is(err, ErrEnded) {
			t.Errorf("an ended fiber may write: %v", err)
		}
		if err := Fenced(t.Context()); err != nil {
			t.Errorf("a context without a fiber is fenced: %v", err)
		}
	})
}

func TestAThousandFibersOfOneKey(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Preempt, Coalesce, SkipIfBusy} {
		bubble(t, EngineOptions{Workers: 8}, func(t *testing.T, e *Engine) {
			var inside, ends, ran atomic.Int32
			release := make(chan struct{})
			fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
				if inside.Add(1) != 1 {
					t.Error("two run")
				}
				ran.Add(1)
				select {
				case <-release:
				case <-ctx.Done():
				}
				inside.Add(-1)
				return f.Next()
			}))
			var last Handle
			started := 0
			for range 1000 {
				h, err := fl.Start(t.Context(), e, &packet{},
					StartOptions{Key: "k", Mode: mode, OnEnd: func(Result) { ends.Add(1) }})
				if err == nil {
					started, last = started+1, h
				} else if !errors.Is(err, ErrBusy) {
					t.Fatal(err)
				}
				if started == 1 {
					synctest.Wait() // the first one is inside
				}
			}
			synctest.Wait()
			close(release)
			if err := last.Wait(t.Context()); err != nil {
				t.Errorf("the last one: %v", err)
			}
			synctest.Wait()
			want := map[Mode]int{Preempt: 1000, Coalesce: 1000, SkipIfBusy: 1}[mode]
			if started != want || int(ends.Load()) != want {
				t.Errorf("mode %d: %d started, %d ended, want %d", mode, started, ends.Load(), want)
			}
			if mode == Coalesce && ran.Load() != 2 {
				t.Errorf("coalesced fibers ran %d times, want 2", ran.Load())
			}
			if e.Live() != 0 {
				t.Errorf("%d fibers are left", e.Live())
			}
		})
	}
}

func TestCancelInEveryState(t *testing.T) {
	t.Parallel()
	why := errors.New("enough")
	cases := []struct {
		reason string
		node   Node[packet]
	}{
		{"while delayed", Step("a", func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) })},
		{"while it waits for a retry", Step("a", func(ctx context.Context, f *fib) Next { return f.Retry(time.Hour) })},
		{"while it backs off", Step("a", func(ctx context.Context, f *fib) Next { return f.Fail(why) },
			Retry(Backoff{Base: time.Hour}))},
		{"while suspended", Step("a", func(ctx context.Context, f *fib) Next { return f.Suspend(f.Token()) })},
		{
			"while awaiting", Step("a", func(ctx context.Context, f *fib) Next {
				return f.Await(&Signal{}, Timeout(time.Hour))
			}),
		},
		{"while awaiting nothing", Step("a", func(ctx context.Context, f *fib) Next { return f.Await() })},
		{"while forked", children("a", []fstep{
			func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) },
			func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Fail(ctx.Err()) },
			func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) },
		}, Limit(2))},
		{"while running", Step("a", func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Fail(ctx.Err()) })},
		{"while running, unmoved", Step("a", func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Next() })},
		{"while running, about to park", Step("a",
			func(ctx context.Context, f *fib) Next { <-ctx.Done(); return f.Await() })},
		{"while running, about to fork", Step("a", func(ctx context.Context, f *fib) Next {
			<-ctx.Done()
			return f.Fork([]Child{New("never", note("x")).Child("", &packet{})})
		})},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			ends, began := 0, time.Now()
			p := &packet{}
			h := start(t, e, New("f", c.node, note("after")), p, StartOptions{Key: "k", OnEnd: func(r Result) {
				ends++
				if r.Status != Cancelled {
					t.Errorf("%s: ended %v", c.reason, r.Status)
				}
			}})
			synctest.Wait()
			if !h.Cancel(why) || h.Cancel(why) {
				t.Errorf("%s: the first cancel counts, the second does not", c.reason)
			}
			err := h.Wait(t.Context())
			if !errors.Is(err, ErrCancelled) || !errors.Is(err, why) || ends != 1 || len(p.log) != 0 {
				t.Errorf("%s: %v, %d callbacks, ran %v", c.reason, err, ends, p.log)
			}
			if time.Since(began) != 0 || e.Live() != 0 {
				t.Errorf("%s: took %v, %d left", c.reason, time.Since(began), e.Live())
			}
			if h.Cancel(why) {
				t.Errorf("%s: cancelled after its end", c.reason)
			}
		})
	}
}

func TestCloseWithTenThousandParkedFibers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(EngineOptions{Workers: 8})
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			switch f.Packet.n % 4 {
			case 0:
				return f.Delay(time.Hour)
			case 1:
				return f.Suspend(f.Token())
			case 2:
				return f.Await(&Signal{}, Timeout(time.Hour))
			}
			return f.Fork([]Child{
				New("child", Step("b", func(ctx context.Context, f *fib) Next { return f.Delay(time.Hour) })).Child("", &packet{}),
			})
		}))
		var ends atomic.Int32
		for i := range 10_000 {
			start(t, e, fl, &packet{n: i}, StartOptions{Key: fmt.Sprintf("ns%d/%d", i%10, i), OnEnd: func(r Result) {
				if !errors.Is(r.Err, ErrClosed) {
					t.Error(r.Err)
				}
				ends.Add(1)
			}})
		}
		synctest.Wait()
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if ends.Load() != 10_000 || e.Live() != 0 {
			t.Errorf("%d callbacks, %d left", ends.Load(), e.Live())
		}
		if _, err := fl.Start(t.Context(), e, &packet{}, StartOptions{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Start after Close: %v", err)
		}
		if err := e.Close(t.Context()); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

func TestAThousandRetries(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		const base, limit = 400 * time.Millisecond, 10 * time.Second
		var last time.Time
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			now := time.Now()
			if waited := now.Sub(last); !last.IsZero() && (waited < base || waited > limit) {
				t.Fatalf("attempt %d came after %v", f.Attempt(), waited)
			}
			last = now
			return f.Fail(errors.New("again"))
		}, Retry(Backoff{Base: base, Max: limit, Attempts: 1000})))
		h := start(t, e, fl, &packet{}, StartOptions{})
		if err := h.Wait(t.Context()); err == nil {
			t.Error("it did not fail")
		}
		info := h.Info()
		if info.Attempt != 999 || len(info.Trail) != 2 && len(info.Trail) != 1 || info.Trail[0].Repeats != 255 {
			t.Errorf("attempt %d, trail %v", info.Attempt, info.Trail)
		}
	})
}
