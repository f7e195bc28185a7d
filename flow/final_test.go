package flow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// badError has a method that panics.
type badError struct{}

func (badError) Error() string { return "bad" }
func (badError) Is(error) bool { panic("bad") }

// A step is retried after an error of its own or of its Done, except for an error that matches ErrFinal.
func TestErrorsThatAreRetried(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	tries := Retry(Backoff{Base: time.Second, Max: time.Second, Attempts: 3})
	for _, c := range []struct {
		reason string
		err    error
		tries  int
	}{
		{"an error", no, 3},
		{"a final one", ErrFinal, 1},
		{"an error that wraps it", fmt.Errorf("%w: %w", no, ErrFinal), 1},
		{"an error whose methods panic", badError{}, 3},
	} {
		for place, step := range map[string]func(asked *int) Node[packet]{
			"of the step": func(asked *int) Node[packet] {
				return Step("a", func(_ context.Context, f *fib) Next { *asked++; return f.Fail(c.err) }, tries, OnError("handler"))
			},
			"of its wait": func(asked *int) Node[packet] {
				return Step("a", func(_ context.Context, f *fib) Next {
					*asked++
					return f.Await(Func(func(context.Context) (bool, error) { return false, c.err }, time.Minute))
				}, tries, OnError("handler"))
			},
			"of its Done": func(asked *int) Node[packet] {
				return Step("a", stay, tries, OnError("handler"),
					Done(func(context.Context, *fib) (bool, error) { *asked++; return false, c.err }))
			},
		} {
			bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
				asked, handled := 0, false
				fl := New("f", step(&asked), Step("handler",
					func(_ context.Context, f *fib) Next { handled = f.Err() != nil; return f.Next() }))
				if err := start(t, e, fl, &packet{}, StartOptions{}).Wait(t.Context()); err != nil {
					t.Errorf("%s %s: %v", c.reason, place, err)
				}
				if asked != c.tries || !handled {
					t.Errorf("%s %s: %d tries, want %d; handled: %v", c.reason, place, asked, c.tries, handled)
				}
			})
		}
	}
}

// An error of Done is retried, and the next call decides.
func TestDoneIsRetried(t *testing.T) {
	t.Parallel()
	bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
		p := &packet{}
		fl := New("f", Step("a", func(_ context.Context, f *fib) Next { f.Packet.note("ran"); return f.Next() },
			Retry(Backoff{Base: time.Second}), Done(func(_ context.Context, f *fib) (bool, error) {
				if f.Attempt() == 0 {
					return false, errors.New("the server does not answer")
				}
				return true, nil
			})), note("b"))
		if err := start(t, e, fl, p, StartOptions{}).Wait(t.Context()); err != nil || len(p.log) != 1 {
			t.Errorf("%v, steps that ran: %v", err, p.log)
		}
	})
}
