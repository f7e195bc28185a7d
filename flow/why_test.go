package flow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/why"
)

// seen is a wait that reports the last value seen.
type seen struct {
	Signal
	value string
}

func (s *seen) Why() []why.Cause {
	return []why.Cause{{Type: why.RateLimited, Message: "the pool is empty", Evidence: map[string]string{"free": s.value}}}
}

// bad is a wait whose Why panics.
type bad struct{ Signal }

func (*bad) Why() []why.Cause { panic("of a wait") }

var errTest = errors.New("of the test")

// unpaid is a condition that never holds.
func unpaid(context.Context) (bool, error) { return false, nil }

// TestWhyOfFunc checks that the cause of a Func names its function, and advises what to do about it.
func TestWhyOfFunc(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waits []Wait
		text  string
	}{
		"Alone": {[]Wait{Func(unpaid, time.Minute)}, "a condition that is checked every 1m0s"},
		"Beside": {
			[]Wait{&Signal{}, Func(unpaid, 0)}, "a signal, or a condition that is checked when another wait wakes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
				step := func(_ context.Context, f *fib) Next { return f.Await(tc.waits...) }
				h := start(t, e, New("f", Step("s", step)), &packet{}, StartOptions{Key: "k"})
				synctest.Wait()
				got := h.Why(nil)
				if len(got) != 1 || got[0].Message != "step f/s waits for "+tc.text {
					t.Fatalf("got %+v", got)
				}
				if is := got[0].Evidence["function"]; !strings.HasPrefix(is, "flow.unpaid (why_test.go:") {
					t.Errorf("the function is %q", is)
				}
				if !strings.Contains(got[0].Advice, "Fiber.Because") {
					t.Errorf("the advice is %q", got[0].Advice)
				}
			})
		})
	}
}

// TestWhy: the wait of a fiber is its cause, with the step and the time of the next check.
func TestWhy(t *testing.T) {
	t.Parallel()
	await := func(waits ...Wait) fstep {
		return func(_ context.Context, f *fib) Next { return f.Await(waits...) }
	}
	fails := func(err error) fstep { return func(_ context.Context, f *fib) Next { return f.Fail(err) } }
	retry := Retry(Backoff{Base: time.Minute, Max: time.Minute})
	stops := New("child", Step("stop", func(_ context.Context, f *fib) Next { return f.Await(&Signal{}) }))
	type expected struct {
		Type     why.Type
		Message  string        // a part of it
		Until    time.Duration // from the start; 0: never
		Evidence map[string]string
	}
	for name, tc := range map[string]struct {
		reason string
		step   fstep
		opts   []Option
		want   []expected
	}{
		"Signal": {
			reason: "a wait is described by its kind", step: await(&Signal{}),
			want: []expected{{why.Parked, "step f/s waits for a signal", 0, map[string]string{
				"step": "f/s", "flow": "f",
				"waits": "a signal",
			}}},
		},
		"Own": {
			reason: "a wait reports the value that it has seen", step: await(&seen{value: "0"}),
			want: []expected{{why.RateLimited, "the pool is empty", 0, map[string]string{"free": "0", "step": "f/s"}}},
		},
		"Bad": {
			reason: "a wait that panics is described by its type", step: await(&bad{}),
			want: []expected{{why.Parked, "*flow.bad", 0, nil}},
		},
		"Timeout": {
			reason: "the end of the wait is reported", step: await(&Signal{}, Timeout(time.Hour)),
			want: []expected{{why.Parked, "a signal", time.Hour, map[string]string{"deadline": "2000-01-01T01:00:00Z"}}},
		},
		"Because": {
			reason: "a cause of the step replaces the derived one",
			step: func(_ context.Context, f *fib) Next {
				f.Because(why.Cause{Type: "NoMoney", Message: "nobody has paid"})
				return f.Await(&Signal{})
			},
			want: []expected{{"NoMoney", "nobody has paid", 0, map[string]string{"step": "f/s"}}},
		},
		"Delay": {
			reason: "time passes", step: func(_ context.Context, f *fib) Next { return f.Delay(time.Minute) },
			want: []expected{{why.Parked, "sleeps until", time.Minute, nil}},
		},
		"Retry": {
			reason: "an error is the cause of a retry", step: fails(errTest), opts: []Option{retry},
			want: []expected{{
				why.BackOff, "of the test", time.Minute, map[string]string{"error": "of the test", "attempts": "1"},
			}},
		},
		"Carried": {
			reason: "an error has its own causes", opts: []Option{retry},
			step: fails(fmt.Errorf("cannot push: %w", why.Because(errTest, why.Cause{Type: why.RateLimited, Message: "quota"}))),
			want: []expected{{why.RateLimited, "quota", time.Minute, map[string]string{"error": "cannot push: of the test"}}},
		},
		"Late": {
			reason: "a passed deadline is reported as such",
			step:   fails(fmt.Errorf("slow: %w", ErrTimeout)), opts: []Option{retry},
			want: []expected{{why.DeadlinePassed, "slow", time.Minute, nil}},
		},
		"Asked": {
			reason: "a step that asks to run again has no error", step: func(_ context.Context,
				f *fib,
			) Next {
				return f.Retry(time.Second)
			},
			want: []expected{{why.BackOff, "asked to run again", time.Second, map[string]string{"attempts": "1"}}},
		},
		"Fork": {
			reason: "the causes of children follow",
			step:   func(_ context.Context, f *fib) Next { return f.Fork([]Child{stops.Child("one", &packet{})}) },
			want: []expected{
				{why.Parked, "waits for 1 children", 0, map[string]string{"children": "1"}},
				{why.Parked, "step f/s[one]/stop waits for a signal", 0, map[string]string{"step": "f/s[one]/stop"}},
			},
		},
		"Suspend": {
			reason: "a token is pending",
			step:   func(_ context.Context, f *fib) Next { return f.Suspend(f.Token()) },
			want:   []expected{{why.Parked, "waits for its token", 0, nil}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
				began := time.Now()
				h := start(t, e, New("f", Step("s", tc.step, tc.opts...)), &packet{}, StartOptions{Key: "k"})
				synctest.Wait()
				got := h.Why(nil)
				if len(got) != len(tc.want) {
					t.Fatalf("%s: got %+v", tc.reason, got)
				}
				for i, want := range tc.want {
					c := got[i]
					until := time.Duration(0)
					if !c.Until.IsZero() {
						until = c.Until.Sub(began)
						if c.Evidence["error"] != "" && until > 30*time.Second-1 && until <= time.Minute { // there is jitter
							until = time.Minute
						}
					}
					has := maps.Clone(want.Evidence)
					for name := range has {
						has[name] = c.Evidence[name]
					}
					if !strings.Contains(c.Message, want.Message) {
						t.Errorf("%s: got %q, want %q", tc.reason, c.Message, want.Message)
					}
					want.Message = c.Message
					if diff := cmp.Diff(want, expected{c.Type, c.Message, until, has}); diff != "" || !c.Since.Equal(began) {
						t.Errorf("%s: since %v, -want +got:\n%s", tc.reason, c.Since, diff)
					}
				}
			})
		})
	}
}

// TestWhyIsForgotten: causes and errors of a step are dropped at its next run and at the next step.
func TestWhyIsForgotten(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		fl := New("f",
			Step("first", func(_ context.Context, f *fib) Next {
				if f.Attempt() == 0 {
					f.Because(why.Cause{Type: "Said", Message: "said"})
					return f.Fail(errTest)
				}
				return f.Await(&Signal{}, Until(f.Now().Add(time.Minute)))
			}, Retry(Backoff{Base: time.Minute, Max: time.Minute})),
			Step("second", func(_ context.Context, f *fib) Next { return f.Await(&Signal{}) }),
		)
		h := start(t, e, fl, &packet{}, StartOptions{})
		var got [][]why.Type
		for range 3 {
			synctest.Wait()
			var types []why.Type
			for _, c := range h.Why(nil) {
				types = append(types, c.Type)
			}
			got = append(got, types)
			time.Sleep(time.Minute)
		}
		want := [][]why.Type{{"Said", why.BackOff}, {why.Parked}, {why.Parked}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if x := h.f.x.Load(); x.notes != nil {
			t.Errorf("it keeps %+v", x.notes)
		}
		h.Cancel(nil)
		synctest.Wait()
		if c := h.Why(nil); c != nil {
			t.Errorf("an ended fiber has the causes %v", c)
		}
	})
}

// TestWhyAtTheGate: the second fiber of a key is queued behind the first. The causes of the first one follow.
func TestWhyAtTheGate(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		fl := New("f", Step("wait", func(_ context.Context, f *fib) Next { return f.Await(&seen{value: "3"}) }))
		start(t, e, fl, &packet{}, StartOptions{Key: "k"})
		synctest.Wait()
		second := start(t, e, fl, &packet{}, StartOptions{Key: "k", Mode: Coalesce})
		synctest.Wait()
		got := second.Why(nil)
		if len(got) != 2 || got[0].Type != why.QueuedBehind || got[0].Evidence["holder"] != "f/wait" ||
			got[0].Evidence["key"] != "k" || got[1].Type != why.RateLimited {
			t.Errorf("got %+v", got)
		}
	})
}

// TestWhyOfWorkers: a step that runs for long is a cause, and so is the lack of a worker.
func TestWhyOfWorkers(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		done := make(chan struct{})
		busy := start(t, e, New("f", Step("slow", func(_ context.Context, f *fib) Next {
			<-done
			return f.Next()
		})), &packet{}, StartOptions{})
		waits := start(t, e, New("g", note("any")), &packet{}, StartOptions{})
		synctest.Wait()
		if got := slices.Concat(busy.Why(nil), waits.Why(nil)); got != nil {
			t.Errorf("a step that has just started is a cause: %+v", got)
		}
		time.Sleep(longRun)
		got := slices.Concat(busy.Why(nil), waits.Why(nil))
		if len(got) != 2 || got[0].Type != why.Parked || got[0].Evidence["running"] != "2s" ||
			got[1].Type != why.QueuedBehind ||
			got[1].Evidence["waiting"] != "1" {
			t.Errorf("got %+v", got)
		}
		for _, c := range got {
			if !strings.Contains(c.Evidence["stack"], "TestWhyOfWorkers") || !strings.Contains(c.Advice, "stack") {
				t.Errorf("the stack of the slow step is missing: %+v", c)
			}
		}
		close(done)
	})
}

// TestWhyClassifies: the caller maps errors to causes.
func TestWhyClassifies(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		h := start(t, e, New("f", Step("s", func(_ context.Context, f *fib) Next { return f.Fail(errTest) },
			Retry(Backoff{}))), &packet{}, StartOptions{})
		synctest.Wait()
		got := h.Why(func(err error) []why.Cause {
			if !errors.Is(err, errTest) {
				t.Errorf("got %v", err)
			}
			return []why.Cause{{Type: why.Forbidden, Message: "may not"}}
		})
		if len(got) != 1 || got[0].Type != why.Forbidden || got[0].Until.IsZero() || got[0].Evidence["attempts"] != "1" {
			t.Errorf("got %+v", got)
		}
	})
}

// TestWhyCostsNothing: a fiber without a failure keeps no extra record for Why.
func TestWhyCostsNothing(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		h := start(t, e, New("f", Step("s", func(_ context.Context, f *fib) Next { return f.Await(&Signal{}) })), &packet{},
			StartOptions{})
		synctest.Wait()
		if x := h.f.x.Load(); x != nil {
			t.Errorf("it keeps %+v", x)
		}
	})
}
