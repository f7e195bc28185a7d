package reconcile

import (
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type delayedError struct{ error }

func (e delayedError) Unwrap() error { return e.error }

func (delayedError) RetryAfter() time.Duration { return 90 * time.Second }

// TestRetries: the kind of an error and the number of attempts decide the delay, and a newer spec starts over.
func TestRetries(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	conflict := apierrors.NewConflict(schema.GroupResource{}, "web", failed)
	one, two := facts{uid: "1", gen: 1}, facts{uid: "1", gen: 2}
	type attempt struct {
		err     error
		seen    facts
		atLeast time.Duration
	}
	for _, tc := range []struct {
		reason   string
		attempts []attempt
		delay    time.Duration // of the last attempt
		class    Class
		n        int
	}{
		{"first failure", []attempt{{err: failed}}, time.Second, Retryable, 1},
		{"second failure", []attempt{{err: failed}, {err: failed}}, 2 * time.Second, Retryable, 2},
		{"another generation", []attempt{{err: failed, seen: one}, {err: failed, seen: two}}, time.Second, Retryable, 1},
		{"at least", []attempt{{err: failed, atLeast: time.Minute}}, time.Minute, Retryable, 1},
		{"Retry-After", []attempt{{err: delayedError{failed}, atLeast: time.Minute}}, 90 * time.Second, Retryable, 1},
		{"conflict", []attempt{{err: conflict}}, 50 * time.Millisecond, Conflict, 1},
		{
			"a conflict does not lengthen the back-off", []attempt{{err: conflict}, {err: failed}}, time.Second, Retryable, 2,
		},
		{"terminal", []attempt{{err: AsTerminal(failed), atLeast: time.Minute}}, 0, Stopped, 1},
		{"exhausted", []attempt{{err: failed}, {err: failed}, {err: failed}}, 0, Stopped, 3},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			p := retries{backoff: Backoff{Base: time.Second}, attempts: 3, random: func() float64 { return 1 }}
			var f *failure
			var delay time.Duration
			var again bool
			for i, a := range tc.attempts {
				f = p.failed(f, a.seen, a.err, time.Unix(int64(i), 0))
				delay, again = p.afterFailure(Key{}, f, a.atLeast)
			}
			if round := delay.Round(time.Millisecond); round != tc.delay || again != (tc.class != Stopped) {
				t.Errorf("the delay is %v (again: %v), want %v", delay, again, tc.delay)
			}
			if f.class != tc.class || f.attempts != tc.n {
				t.Errorf("class %s after %d attempts, want %s after %d", f.class, f.attempts, tc.class, tc.n)
			}
			exhausted := tc.n == 3
			if errors.Is(f.err, ErrExhausted) != exhausted || !errors.Is(f.err, failed) && f.class != Conflict {
				t.Errorf("the error is %v", f.err)
			}
			if f.stopped(Modified) != (tc.class == Stopped) || f.stopped(Interval) != (tc.class == Stopped && !exhausted) {
				t.Errorf("stopped: %v, in an interval: %v", f.stopped(Modified), f.stopped(Interval))
			}
		})
	}
}

// TestRequeues: consecutive results of After(0) back off. Another result or spec starts over.
func TestRequeues(t *testing.T) {
	t.Parallel()
	p := retries{backoff: Backoff{Base: time.Second}, random: func() float64 { return 1 }}
	one, two := facts{uid: "1", gen: 1}, facts{uid: "1", gen: 2}
	var n requeues
	for i, tc := range []struct {
		seen facts
		res  Result
		want time.Duration
	}{
		{one, After(0), time.Second},
		{one, After(-time.Minute), 2 * time.Second},
		{one, After(time.Hour), time.Hour},
		{one, After(0), time.Second},
		{one, After(0), 2 * time.Second},
		{two, After(0), time.Second},
		{two, Done, 0},
	} {
		if got := p.afterSuccess(Key{}, &n, tc.seen, tc.res).Round(time.Millisecond); got != tc.want {
			t.Errorf("result %d: the delay is %v, want %v", i+1, got, tc.want)
		}
	}
}
