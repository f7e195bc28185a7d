package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

func TestEventsDuringACallLeadToOneMore(t *testing.T) {
	bubble(t, func(b *bench) {
		release := make(chan struct{})
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n == 1 {
				<-release
			}
			return reconcile.Done, nil
		})
		b.put("web")
		b.start()
		for n := int64(2); n < 12; n++ {
			b.change(size(n))
		}
		b.settle()
		b.wantCalls(1, "while the first runs")
		close(release)
		b.settle()
		b.wantCalls(2, "afterwards")
		wantSize(t, b, 11)
	})
}

func TestNeverTwoAtATime(t *testing.T) {
	bubble(t, func(b *bench) {
		var running atomic.Int32
		release := make(chan struct{})
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if at := running.Add(1); at != 1 {
				t.Errorf("%d reconciliations run at a time", at)
			}
			defer running.Add(-1)
			if n == 1 {
				<-release
			}
			return reconcile.Done, nil
		})
		first := b.put("web").GetUID()
		b.start()
		if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
			t.Fatal(err)
		}
		b.settle()
		second := b.put("web").GetUID()
		b.settle()
		b.wantCalls(1, "the old object is still worked on")
		close(release)
		b.settle()
		b.wantCalls(2, "deleted and created again")
		if got := b.last().obj.UID; got != second || got == first {
			t.Errorf("the last reconciliation was of %s, want %s", got, second)
		}
	})
}

func TestBackoff(t *testing.T) {
	bubble(t, func(b *bench) {
		fail := errors.New("out of paper")
		c := b.controller(func(context.Context, int, *gateway) (reconcile.Result, error) { return reconcile.Retry(fail) },
			reconcile.WithBackoff(reconcile.Backoff{Base: 10 * time.Second, Cap: time.Minute}))
		b.put("web")
		b.start()
		testbed.Settle(30 * time.Minute)
		n := b.count()
		if n < 30 || n > 300 {
			t.Errorf("%d attempts in half an hour, with at most a minute between them", n)
		}
		for i := 1; i < n; i++ {
			if gap := b.calls[i].at - b.calls[i-1].at; gap < time.Second || gap > time.Minute+time.Second {
				t.Errorf("%v between attempts %d and %d", gap, i, i+1)
			}
			if got := b.calls[i].info; got.Attempt != i+1 || !errors.Is(got.LastError, fail) {
				t.Errorf("attempt %d is reported as %d after %v", i+1, got.Attempt, got.LastError)
			}
		}
		f := c.Failures()
		if len(f) != 1 || f[0].Key != web || f[0].Class != reconcile.Retryable || f[0].Attempts != n || f[0].Next.IsZero() ||
			!errors.Is(f[0].Err, fail) {
			t.Errorf("failures are %+v", f)
		}
		if !strings.Contains(f[0].Err.Error(), `cannot reconcile a/web with "gateways": out of paper`) {
			t.Errorf("the error is %q", f[0].Err)
		}
	})
}

// Events during a back-off do not shorten it, unless the spec changes.
func TestEventsDuringBackoff(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n <= 2 {
				return reconcile.Retry(errors.New("no"))
			}
			return reconcile.Done, nil
		}, reconcile.WithBackoff(reconcile.Backoff{Base: 10 * time.Hour, Cap: 10 * time.Hour}))
		b.put("web")
		b.start()
		for i := range 20 {
			b.change(label(string(rune('a' + i))))
			b.settle()
		}
		b.wantCalls(1, "labels change during the back-off")
		b.change(size(2))
		b.settle()
		b.wantCalls(2, "the spec has changed")
		if got := b.last().info; got.Attempt != 1 {
			t.Errorf("attempt %d of a new spec", got.Attempt)
		}
		b.change(label("z"))
		b.settle()
		b.wantCalls(2, "the new spec has failed, too")
		testbed.Settle(11 * time.Hour)
		b.wantCalls(3, "the time of the back-off has come")
		if got := b.last().info.Reasons; len(got) < 2 {
			t.Errorf("the reasons %v lack the events during the back-off", got)
		}
	})
}

func TestSpecChangeDuringAFailingCall(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n == 1 {
				b.change(size(2))
				return reconcile.Terminal(errors.New("size 1 is not for sale"))
			}
			return reconcile.Done, nil
		})
		b.put("web")
		b.start()
		b.wantCalls(2, "what failed is not what is asked for now")
	})
}

type slowDown time.Duration

func (slowDown) Error() string               { return "slow down" }
func (d slowDown) RetryAfter() time.Duration { return time.Duration(d) }

func TestClassesOfErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason   string
		err      error
		min, max time.Duration // until the second attempt
	}{
		{"retryable", errors.New("no"), 100 * time.Millisecond, time.Second},
		{"any error with RetryAfter", slowDown(42 * time.Minute), 42 * time.Minute, 42 * time.Minute},
		{"a conflict is retried soon", conflictError(), time.Millisecond, 50 * time.Millisecond},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
					if n == 1 {
						return reconcile.Retry(tc.err)
					}
					return reconcile.Done, nil
				})
				b.put("web")
				b.start()
				testbed.Settle(time.Hour)
				b.wantCalls(2, tc.reason)
				if gap := b.calls[1].at - b.calls[0].at; gap < tc.min || gap > tc.max {
					t.Errorf("%v until the next attempt, want %v to %v", gap, tc.min, tc.max)
				}
			})
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		err    error
		want   time.Duration // until the second attempt
	}{
		{"the time that the server asks for", apiError(429, 600), 10 * time.Minute},
		{"a server that asks for a month", apiError(429, 30*24*60*60), time.Hour},
		{"a number of seconds that no duration can hold", apiError(503, math.MaxInt32), time.Hour},
		{"an error that asks for ever", fmt.Errorf("busy: %w", slowDown(math.MaxInt64)), time.Hour},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
					if n == 1 {
						return reconcile.Retry(tc.err)
					}
					return reconcile.Done, nil
				})
				b.put("web")
				b.start()
				testbed.Settle(2 * time.Hour)
				b.wantCalls(2, tc.reason)
				if gap := b.calls[1].at - b.calls[0].at; gap != tc.want {
					t.Errorf("%v until the next attempt, want %v", gap, tc.want)
				}
			})
		})
	}
}

func TestTerminal(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n == 1 {
				return reconcile.Terminal(errors.New("nonsense"))
			}
			return reconcile.Done, nil
		}, reconcile.MaxInterval(time.Hour))
		b.put("web")
		b.start()
		b.change(label("x"))
		testbed.Settle(10 * time.Hour)
		b.wantCalls(1, "the spec has not changed")
		if f := c.Failures(); len(f) != 1 || f[0].Class != reconcile.Stopped || !f[0].Next.IsZero() ||
			!errors.Is(f[0].Err, reconcile.ErrTerminal) {
			t.Errorf("failures are %+v", f)
		}
		b.change(size(2))
		b.settle()
		b.wantCalls(2, "the spec has changed")
		if f := c.Failures(); len(f) != 0 {
			t.Errorf("failures are %+v", f)
		}
	})
}

func TestMaxAttempts(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.controller(func(context.Context, int, *gateway) (reconcile.Result, error) {
			return reconcile.Retry(errors.New("no"))
		}, reconcile.MaxAttempts(3), reconcile.MaxInterval(24*time.Hour))
		b.put("web")
		b.start()
		b.change(label("x"))
		testbed.Settle(20 * time.Minute)
		b.wantCalls(3, "the maximum")
		if f := c.Failures(); len(f) != 1 || !errors.Is(f[0].Err, reconcile.ErrExhausted) {
			t.Errorf("failures are %+v", f)
		}
		testbed.Settle(25 * time.Hour)
		if n := b.count(); n < 4 || n > 5 {
			t.Errorf("%d attempts after the maximum interval, want one or two more than 3", n)
		}
	})
}

func TestAfter(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n == 1 || n == 3 {
				return reconcile.After(time.Hour), nil
			}
			return reconcile.Done, nil
		})
		b.put("web")
		b.start()
		testbed.Settle(59 * time.Minute)
		b.wantCalls(1, "not yet")
		testbed.Settle(time.Minute)
		b.wantCalls(2, "an hour later")
		if got := b.last().info.Reasons; len(got) != 1 || got[0].Type != reconcile.Scheduled {
			t.Errorf("the reasons are %v", got)
		}
		b.change(size(2))
		b.settle()
		b.wantCalls(3, "an event")
		b.change(size(3))
		testbed.Settle(5 * time.Hour)
		b.wantCalls(4, "the last result, Done, replaces the time that the one before asked for")
	})
}

func TestMaxInterval(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(nil, reconcile.MaxInterval(time.Hour))
		b.put("web")
		b.start()
		testbed.Settle(10*time.Hour + time.Minute)
		if n := b.count(); n < 10 || n > 12 {
			t.Errorf("%d reconciliations in ten hours with an interval of one hour", n)
		}
		if got := b.last().info.Reasons; len(got) != 1 || got[0].Type != reconcile.Interval {
			t.Errorf("the reasons are %v", got)
		}
	})
}

func TestRateLimit(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(nil, reconcile.RateLimit(2, time.Minute))
		b.put("web")
		b.start()
		for n := range 60 {
			b.change(size(int64(n + 10)))
			testbed.Settle(5 * time.Second)
		}
		testbed.Settle(2 * time.Minute)
		for i := 2; i < b.count(); i++ {
			if gap := b.calls[i].at - b.calls[i-2].at; gap < time.Minute {
				t.Errorf("three reconciliations within %v", gap)
			}
		}
		if n := b.count(); n < 8 || n > 13 {
			t.Errorf("%d reconciliations in five minutes with events", n)
		}
		wantSize(t, b, 69)
	})
}

func TestReasons(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(nil)
		b.put("web")
		b.start()
		b.change(size(2))
		b.settle()
		if got := b.last().info.Reasons; len(got) != 1 || got[0].Type != reconcile.Modified || got[0].Source != "Gateway" ||
			got[0].Key != web || got[0].Version == "" {
			t.Errorf("the reasons are %v", got)
		}
		if got := b.last().info; got.Controller != "gateways" || got.Key != web || got.Attempt != 1 {
			t.Errorf("the info is %+v", got)
		}
		if got := reconcile.InfoFrom(t.Context()).Reasons; got != nil {
			t.Errorf("reasons outside of a reconciliation: %v", got)
		}
	})
}

func TestTrigger(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.controller(nil)
		b.put("web")
		b.start()
		c.Trigger(web, "a phone call")
		c.Trigger(reconcile.Key{Namespace: "a", Name: "nobody"}, "a phone call")
		b.settle()
		b.wantCalls(2, "one of the two exists")
		if got := b.last().info.Reasons; len(got) != 1 || got[0].Type != reconcile.Triggered ||
			got[0].Source != "a phone call" {
			t.Errorf("the reasons are %v", got)
		}
		if s := c.Describe(0).Counts; s != (inspect.Counts{}) {
			t.Errorf("something is left: %+v", s)
		}
	})
}

func TestDeadline(t *testing.T) {
	bubble(t, func(b *bench) {
		var cause error
		b.controller(func(ctx context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n == 1 {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return reconcile.Retry(ctx.Err())
			}
			return reconcile.Done, nil
		}, reconcile.Deadline(time.Minute))
		b.put("web")
		b.start()
		testbed.Settle(2 * time.Minute)
		b.wantCalls(2, "the first took too long and is a failure")
		if !errors.Is(cause, reconcile.ErrDeadline) {
			t.Errorf("the cause is %v", cause)
		}
		if got := b.last().info; got.Attempt != 2 {
			t.Errorf("attempt %d", got.Attempt)
		}
	})
}

func TestPreempt(t *testing.T) {
	bubble(t, func(b *bench) {
		var causes []error
		b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			if n > 1 {
				return reconcile.Done, nil
			}
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx), b.countUp(context.WithoutCancel(ctx), g))
			return reconcile.Retry(ctx.Err())
		}, reconcile.Preempt())
		b.put("web")
		b.start()
		b.change(label("x"))
		b.settle()
		if len(causes) != 0 {
			t.Error("a label preempts the reconciliation")
		}
		b.change(size(2))
		b.settle()
		b.wantCalls(2, "preempted")
		wantSize(t, b, 2)
		if got := b.last().info; got.Attempt != 1 {
			t.Errorf("a preempted call counts as a failure: attempt %d", got.Attempt)
		}
		for _, err := range causes {
			if !errors.Is(err, reconcile.ErrPreempted) {
				t.Errorf("got %v, want ErrPreempted", err)
			}
		}
		if n := b.server.Log().Count(apiserver.Match{Verb: "patch"}); n != 0 {
			t.Errorf("%d writes of a preempted call", n)
		}
	})
}

func TestDeletedObjectsWithoutCleanup(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.controller(nil)
		b.put("web", func(g *gateway) { g.Finalizers = []string{"test.fairlead.io/other"} })
		b.start()
		if err := b.server.Delete(b.ctx, testbed.Gateways, "a", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.settle()
		b.wantCalls(2, "it is being deleted")
		b.change(func(u *unstructured.Unstructured) { u.SetFinalizers(nil) })
		if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
			t.Fatal(err)
		}
		b.settle()
		if s := c.Describe(0).Counts; s != (inspect.Counts{}) {
			t.Errorf("something is left: %+v", s)
		}
	})
}
