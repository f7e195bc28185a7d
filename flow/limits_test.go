package flow

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// Durations at the ends of their range mean at once, or never.
func TestTimesAtTheLimits(t *testing.T) {
	t.Parallel()
	const never = time.Duration(math.MaxInt64)
	delay := func(d time.Duration, opts ...Option) *Flow[packet] {
		return New("f", Step("a", func(_ context.Context, f *fib) Next { return f.Delay(d) }, opts...))
	}
	late := func(o *object) *object {
		time.AfterFunc(time.Minute, func() { o.live.Store(true) }) // without an event
		return o
	}
	for _, tc := range []struct {
		reason string
		flow   func() *Flow[packet]
		opts   StartOptions
		after  time.Duration
		err    error
	}{
		{
			"a zero timeout has passed", func() *Flow[packet] { return await("", &object{}, Timeout(0)) },
			StartOptions{},
			0,
			ErrTimeout,
		},
		{
			"so has a negative one", func() *Flow[packet] { return await("", &object{}, Timeout(-time.Hour)) },
			StartOptions{},
			0,
			ErrTimeout,
		},
		{
			"and the smallest one", func() *Flow[packet] { return await("", &object{}, Timeout(math.MinInt64)) },
			StartOptions{},
			0,
			ErrTimeout,
		},
		{"an infinite timeout keeps the live checks", func() *Flow[packet] {
			return await("", late(&object{}), Timeout(never))
		}, StartOptions{}, 2 * time.Minute, nil},
		{
			"and the timeout of the fiber", func() *Flow[packet] { return await("", &object{}, Timeout(never)) },
			StartOptions{Timeout: time.Minute},
			2 * time.Minute, ErrTimeout,
		},
		{"a shorter one takes precedence", func() *Flow[packet] {
			return await("", &object{}, Timeout(never), Timeout(time.Second))
		}, StartOptions{}, time.Minute, ErrTimeout},
		{
			"in any order", func() *Flow[packet] { return await("", &object{}, Timeout(time.Second), Timeout(never)) },
			StartOptions{},
			time.Minute, ErrTimeout,
		},
		{"an infinite deadline of the step keeps the timeout of the fiber", func() *Flow[packet] {
			return delay(time.Hour, Deadline(never))
		}, StartOptions{Timeout: time.Minute}, 2 * time.Minute, ErrTimeout},
		{"an infinite timeout of the fiber keeps the deadline of the step", func() *Flow[packet] {
			return delay(time.Hour, Deadline(time.Minute))
		}, StartOptions{Timeout: never}, 2 * time.Minute, ErrTimeout},
		{
			"neither ends", func() *Flow[packet] { return delay(time.Hour, Deadline(never)) },
			StartOptions{Timeout: never},
			2 * time.Hour, nil,
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) {
				time.Sleep(time.Hour) // so that sums of times may run over
				h := start(t, e, tc.flow(), &packet{}, tc.opts)
				time.Sleep(tc.after)
				synctest.Wait()
				if !h.Status().Ended() {
					t.Fatalf("after %v it is %v", tc.after, h.Status())
				}
				if err := h.Err(); !errors.Is(err, tc.err) {
					t.Errorf("it ended with %v, want %v", err, tc.err)
				}
			})
			bubble(t, EngineOptions{}, func(t *testing.T, e *Engine) { // the first moment of an engine
				h := start(t, e, tc.flow(), &packet{}, tc.opts)
				time.Sleep(tc.after)
				synctest.Wait()
				if err := h.Err(); !h.Status().Ended() || !errors.Is(err, tc.err) {
					t.Errorf("on a new engine, after %v, it is %v: %v", tc.after, h.Status(), err)
				}
			})
		})
	}
}
