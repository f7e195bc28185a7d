package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// No value for After makes a busy loop. Zero and negative values wait for the back-off, also in Cleanup and between
// failures.
func TestAfterZero(t *testing.T) {
	t.Parallel()
	back := reconcile.WithBackoff(reconcile.Backoff{Base: time.Second, Cap: time.Minute})
	for _, d := range []time.Duration{0, -1, -time.Hour, -1 << 63} {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
					if n%5 == 0 {
						return reconcile.After(d), errors.New("now and then")
					}
					return reconcile.After(d), nil
				}, back)
				b.put("web")
				b.start()
				testbed.Settle(time.Hour)
				if n := b.count(); n < 60 || n > 1000 {
					t.Errorf("%d reconciliations in an hour with a back-off of at most a minute", n)
				}
			})
		})
	}
}

func TestAfterLittle(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(context.Context, int, *gateway) (reconcile.Result, error) { return reconcile.After(1), nil })
		b.put("web")
		b.start()
		if n := b.count(); n > 3001 {
			t.Errorf("%d reconciliations in three seconds", n)
		}
	})
}

// The back-off of After(0) grows, and an event does not wait for it. Another result or another spec resets it.
func TestRequeueBackoff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		reset  func(b *bench, result *reconcile.Result)
		resets bool
	}{
		{"another spec", func(b *bench, _ *reconcile.Result) { b.change(size(2)) }, true},
		{"another result", func(b *bench, result *reconcile.Result) {
			*result = reconcile.Done
			b.change(label("x"))
			b.settle()
			*result = reconcile.After(0)
			b.change(label("y"))
		}, true},
		{"a label", func(b *bench, _ *reconcile.Result) { b.change(label("x")) }, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				result := reconcile.After(0)
				b.controller(func(context.Context, int, *gateway) (reconcile.Result, error) { return result, nil },
					reconcile.WithBackoff(reconcile.Backoff{Base: time.Second, Cap: 24 * time.Hour}))
				b.put("web")
				b.start()
				testbed.Settle(12 * time.Hour)
				before := b.count()
				if before < 5 || before > 60 {
					t.Fatalf("%d reconciliations in twelve hours", before)
				}
				tc.reset(b, &result)
				b.settle()
				if b.count() == before {
					t.Fatal("the event waits for the back-off")
				}
				before = b.count()
				testbed.Settle(time.Minute)
				if resets := b.count() > before; resets != tc.resets {
					t.Errorf("%d more in the next minute; want a new back-off: %v", b.count()-before, tc.resets)
				}
			})
		})
	}
}

// With both an error and a time, the error decides the result, and no attempt happens before the time.
func TestErrorAndAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		err      error
		after    time.Duration
		from, to time.Duration // of the second attempt; 0: none
	}{
		{"the back-off is longer", errors.New("no luck"), time.Millisecond, 100 * time.Millisecond, time.Second},
		{"the time is longer", errors.New("no luck"), time.Minute, time.Minute, time.Minute},
		{"a conflict", conflictError(), time.Minute, time.Minute, time.Minute},
		{"nothing", errors.New("no luck"), 0, 100 * time.Millisecond, time.Second},
		{"the server asks for longer", apiError(429, 120), time.Minute, 2 * time.Minute, 2 * time.Minute},
		{"terminal", reconcile.AsTerminal(errors.New("never")), time.Minute, 0, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
					if n == 1 {
						return reconcile.After(tc.after), tc.err
					}
					return reconcile.Done, nil
				})
				b.put("web")
				b.start()
				testbed.Settle(time.Hour)
				if tc.to == 0 {
					b.wantCalls(1, "nothing is tried until the spec changes")
					return
				}
				b.wantCalls(2, "one more attempt")
				if d := b.calls[1].at - b.calls[0].at; d < tc.from || d > tc.to+time.Second {
					t.Errorf("the second attempt came after %v, want %v to %v", d, tc.from, tc.to)
				}
			})
		})
	}
}
