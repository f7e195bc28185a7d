package flow

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// Scenarios of suspension in which other engines have failed.

func TestResumeFromInsideTheStep(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		fl := New("f",
			Step("a", func(ctx context.Context, f *fib) Next {
				tok := f.Token()
				if !tok.Resume("early") {
					t.Error("an early resume was refused")
				}
				return f.Suspend(tok)
			}),
			Step("b", func(ctx context.Context, f *fib) Next {
				v, _ := Value[string](f)
				f.Packet.note(v)
				return f.Next()
			}))
		p := &packet{}
		if err := start(t, e, fl, p, StartOptions{}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if strings.Join(p.log, " ") != "early" {
			t.Errorf("b saw %q", p.log)
		}
	})
}

func TestResumeFromTheSuspendAction(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{Workers: 1}, func(t *testing.T, e *Engine) {
		fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
			tok := f.Token()
			return f.Suspend(tok, func(context.Context) error { tok.Resume(nil); return nil })
		}), note("b"))
		p := &packet{}
		if err := start(t, e, fl, p, StartOptions{}).Wait(t.Context()); err != nil || len(p.log) != 1 {
			t.Fatal(err, p.log)
		}
	})
}

func TestDoubleResumeAcrossTwoSuspensions(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		tokens := make(chan Token, 2)
		suspend := func(name string) Node[packet] {
			return Step(name, func(ctx context.Context, f *fib) Next {
				tok := f.Token()
				tokens <- tok
				return f.Suspend(tok)
			})
		}
		h := start(t, e, New("f", suspend("a"), suspend("b")), &packet{}, StartOptions{})
		first := <-tokens
		synctest.Wait()
		if !first.Resume(nil) {
			t.Fatal("the first resume was refused")
		}
		second := <-tokens
		synctest.Wait()
		if first.Resume(nil) || first.Fail(errors.New("late")) {
			t.Error("a second resume of the first token was accepted")
		}
		synctest.Wait()
		if got := h.Info(); got.Path != "f/b" || got.Status != Parked || got.Why != "suspend" {
			t.Fatalf("the late resume woke the second suspension: %+v", got)
		}
		if !second.Resume(nil) {
			t.Error("the resume of the second token was refused")
		}
		if err := h.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if second.Resume(nil) {
			t.Error("a resume after the end was accepted")
		}
	})
}

func TestResumeWithAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, orElse := range []bool{false, true} {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			var tok Token
			fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
				tok = f.Token()
				if orElse {
					return f.Suspend(tok).Else("c")
				}
				return f.Suspend(tok)
			}), note("b"), note("c"))
			p := &packet{}
			h := start(t, e, fl, p, StartOptions{})
			synctest.Wait()
			tok.Fail(broken)
			err := h.Wait(t.Context())
			if orElse && (err != nil || strings.Join(p.log, " ") != "c") {
				t.Errorf("with Else: %v, %v", err, p.log)
			}
			if !orElse && (!errors.Is(err, broken) || err.Error() != "f/a: broken") {
				t.Errorf("without Else: %v", err)
			}
		})
	}
}

func TestStaleTokenFailsTheSuspension(t *testing.T) {
	t.Parallel()
	var kept Token
	cases := []struct {
		reason string
		step   fstep
	}{
		{"the zero token would never be resumed", func(ctx context.Context, f *fib) Next { return f.Suspend(Token{}) }},
		{"an older token of the step", func(ctx context.Context, f *fib) Next {
			old := f.Token()
			f.Token()
			return f.Suspend(old)
		}},
		{"a token of an earlier run of the step", func(ctx context.Context, f *fib) Next {
			if f.Attempt() == 0 {
				kept = f.Token()
				return f.Retry(0)
			}
			return f.Suspend(kept)
		}},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			if err := start(t, e, New("f", Step("a", c.step)), &packet{}, StartOptions{}).Wait(t.Context()); !errors.Is(err,
				errStaleToken) {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

func TestATokenOfAStepThatDidNotSuspendIsStale(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		leave  func(f *fib) Next
	}{
		{"it continued", func(f *fib) Next { return f.Next() }},
		{"it failed", func(f *fib) Next { return f.Fail(errBad) }},
		{"it panicked", func(f *fib) Next { panic(errBad) }},
		{"it parked otherwise", func(f *fib) Next { return f.Delay(1) }},
	}
	for _, c := range cases {
		bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
			var tok Token
			h := start(t, e, New("f", Step("a", func(ctx context.Context, f *fib) Next {
				tok = f.Token()
				return c.leave(f)
			}, OnError("b")), Step("b", func(ctx context.Context, f *fib) Next {
				if tok.Resume(nil) {
					t.Errorf("%s: its token was accepted", c.reason)
				}
				return f.Next()
			})), &packet{}, StartOptions{})
			if err := h.Wait(t.Context()); err != nil {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}

// The race detector checks that Value and the resumption of a running step's token take the same lock.
func TestValueIsReadWhileTheTokenIsResumed(t *testing.T) {
	t.Parallel()
	e := NewEngine(EngineOptions{})
	defer func() {
		if err := e.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	h := start(t, e, New("f", Step("a", func(_ context.Context, f *fib) Next {
		token := f.Token()
		go token.Resume("early")
		for {
			if got, ok := Value[string](f); ok {
				f.Packet.note(got)
				return f.Suspend(token)
			}
			runtime.Gosched()
		}
	})), &packet{}, StartOptions{})
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
