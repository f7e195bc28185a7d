package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestTotalRateLimit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		n       int
		per     time.Duration
		workers int
		want    time.Duration // from the first reconciliation to the last of twelve
	}{
		{"the zero value is no limit", 0, 0, 8, 0},
		{"no period is no limit", 3, 0, 8, 0},
		{"three in a minute", 3, time.Minute, 8, 3 * time.Minute},
		{"one worker", 3, time.Minute, 1, 3 * time.Minute},
		{"one at a time", 1, time.Minute, 8, 11 * time.Minute},
		{"a limit that is not reached", 12, time.Minute, 8, 0},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				c := b.controller(nil, reconcile.TotalRateLimit(tc.n, tc.per), reconcile.Workers(tc.workers))
				for i := range 12 {
					b.put(fmt.Sprint("web-", i))
				}
				b.start()
				testbed.Settle(time.Hour)
				b.wantCalls(12, tc.reason)
				if got := b.calls[11].at - b.calls[0].at; got != tc.want {
					t.Errorf("the last reconciliation began %v after the first, want %v", got, tc.want)
				}
				for i := tc.n; i < 12 && tc.n > 0; i++ {
					if gap := b.calls[i].at - b.calls[i-tc.n].at; gap < tc.per {
						t.Errorf("%d within %v", tc.n+1, gap)
					}
				}
				if s := c.Describe(0).Counts; s != (inspect.Counts{}) {
					t.Errorf("something is left: %+v", s)
				}
			})
		})
	}
}

// Objects that wait for the total rate keep their priority, and further events of them are merged.
func TestWaitingForTheTotalRate(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.controller(nil, reconcile.TotalRateLimit(1, time.Minute))
		for i := range 5 {
			b.put(fmt.Sprint("initial-", i))
		}
		b.start()
		b.wantCalls(1, "the first")
		b.put("web")
		for n := range 5 {
			b.change(size(int64(n + 2)))
			b.settle()
		}
		testbed.Settle(time.Minute)
		b.wantCalls(2, "the second")
		if got := b.last(); got.key != web || got.obj.Spec.Size != 6 {
			t.Errorf("the second is %s with size %d: live changes go first, in one", got.key, got.obj.Spec.Size)
		}
		testbed.Settle(time.Hour)
		b.wantCalls(6, "all")

		// An object that is deleted and created again while it waits for the rate is reconciled.
		c.Trigger(web, "first")
		b.settle()
		b.wantCalls(7, "at once")
		b.change(size(20))
		b.settle()
		if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
			t.Fatal(err)
		}
		b.settle()
		if s := c.Describe(0).Counts; s != (inspect.Counts{}) {
			t.Errorf("the object is deleted, but still counted: %+v", s)
		}
		c.Trigger(reconcile.Key{Namespace: "a", Name: "initial-0"}, "second")
		b.settle()
		b.wantCalls(7, "not yet")
		testbed.Settle(time.Minute)
		b.wantCalls(8, "a minute after the one before")
		if gap := b.calls[7].at - b.calls[6].at; gap != time.Minute {
			t.Errorf("%v after the previous one", gap)
		}
	})
}

// A scheduled time stands despite events, after a failure and after a failure that followed After.
func TestTheScheduledTimeSurvives(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			switch n {
			case 1:
				return reconcile.After(time.Hour), nil
			case 2, 3:
				return reconcile.Retry(slowDown(42 * time.Minute)) // for 42 minutes
			case 4:
				return reconcile.Retry(apiError(429, 600))
			}
			return reconcile.Done, nil
		}, reconcile.Owns[corev1.ConfigMap](), reconcile.MaxInterval(7*time.Minute), reconcile.RateLimit(100, time.Minute))
		owner := b.put("web")
		b.start()
		// During a back-off neither events of the object and its owned objects, nor triggers, nor the interval reconcile.
		owned := configMap("owned")
		owned.OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(owner, testbed.GroupVersion.WithKind("Gateway")),
		}
		disturb := func(d time.Duration) {
			for i := range int(d / time.Minute) {
				b.change(label(fmt.Sprint(i)))
				owned.Labels = map[string]string{"l": fmt.Sprint(i)}
				testbed.Put(t, b.server, owned)
				c.Trigger(web, "impatience")
				testbed.Settle(time.Minute)
			}
		}
		// The first event arrives before the hour of After has passed: the last result counts.
		b.change(label("first"))
		b.settle()
		b.wantCalls(2, "an event")
		disturb(41 * time.Minute)
		b.wantCalls(2, "in back-off for 42 minutes")
		testbed.Settle(time.Minute)
		b.wantCalls(3, "the time has come")
		disturb(41 * time.Minute)
		b.wantCalls(3, "in back-off again")
		testbed.Settle(time.Minute)
		b.wantCalls(4, "the time has come again")
		b.change(size(2))
		b.settle()
		if len(b.calls) != 6 { // the interval may be due right after it, too
			b.wantCalls(5, "another generation resets the back-off")
		}
		for i, want := range []time.Duration{42 * time.Minute, 42 * time.Minute} {
			if gap := b.calls[i+2].at - b.calls[i+1].at; gap != want {
				t.Errorf("attempt %d came after %v, want exactly %v", i+3, gap, want)
			}
		}
		if f := c.Failures(); len(f) != 0 {
			t.Errorf("failures are %v", f)
		}
	})
}

// A failure after After waits for its own time, not for that of After.
func TestAfterThenAFailure(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			switch n {
			case 1, 4:
				return reconcile.After(10 * time.Minute), nil
			case 2, 3:
				return reconcile.After(time.Minute), errors.Join(slowDown(42 * time.Minute)) // the error counts
			}
			return reconcile.Done, nil
		})
		b.put("web")
		b.start()
		for i := range 100 {
			testbed.Settle(time.Minute)
			if n := b.count(); n == 2 || n == 3 { // in back-off
				b.change(label(fmt.Sprint(i)))
			}
		}
		testbed.Settle(2 * time.Hour)
		b.wantCalls(5, "After, two failures, After, the end")
		for i, want := range []time.Duration{10 * time.Minute, 42 * time.Minute, 42 * time.Minute, 10 * time.Minute} {
			if gap := b.calls[i+1].at - b.calls[i].at; gap != want {
				t.Errorf("call %d came after %v, want %v", i+2, gap, want)
			}
		}
	})
}
