package reconcile_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

const finalizer = "test.fairlead.io/gateways"

// cleaner is a reconciler with a Cleanup.
type cleaner struct {
	b       *bench
	do      func(ctx context.Context, n int, g *gateway) (reconcile.Result, error)
	cleanup func(ctx context.Context, n int, g *gateway) (reconcile.Result, error)
}

func (c *cleaner) Reconcile(ctx context.Context, g *gateway) (reconcile.Result, error) {
	n := c.b.note(ctx, g)
	if c.do == nil {
		return reconcile.Done, nil
	}
	return c.do(ctx, n, g)
}

func (c *cleaner) Cleanup(ctx context.Context, g *gateway) (reconcile.Result, error) {
	n := c.b.note(ctx, g)
	c.b.calls[n-1].cleanup = true
	if c.cleanup == nil {
		return reconcile.Done, nil
	}
	return c.cleanup(ctx, n, g)
}

func (b *bench) cleaner(c *cleaner, opts ...reconcile.Option) *reconcile.Controller {
	c.b = b
	return reconcile.New[gateway](b.host, "gateways", c,
		append([]reconcile.Option{reconcile.Finalizer(finalizer), reconcile.MaxInterval(-1)}, opts...)...)
}

func (b *bench) delete(name string) {
	b.t.Helper()
	if err := b.server.Delete(b.ctx, testbed.Gateways, "a", name, metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

func TestFinalizerBeforeTheFirstCall(t *testing.T) {
	bubble(t, func(b *bench) {
		b.cleaner(&cleaner{do: func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			if stored := testbed.Stored(b.server, web); !slices.Contains(stored.Finalizers, finalizer) ||
				!slices.Contains(g.Finalizers, finalizer) {
				t.Errorf("the first call comes without the finalizer: %v, %v", stored.Finalizers, g.Finalizers)
			}
			if got := reconcile.InfoFrom(ctx).Finalizer; got != finalizer {
				t.Errorf("the finalizer is %q", got)
			}
			return reconcile.Done, nil
		}})
		b.put("web", func(g *gateway) { g.Finalizers = []string{"test.fairlead.io/other"} })
		b.start()
		b.wantCalls(1, "in the same pass, and its event is an echo")
		b.delete("web")
		b.settle()
		b.wantCalls(2, "cleanup")
		if !b.last().cleanup {
			t.Error("the object was reconciled instead of cleaned up")
		}
		if got := testbed.Stored(b.server, web).Finalizers; !slices.Equal(got, []string{"test.fairlead.io/other"}) {
			t.Errorf("finalizers are %v", got)
		}
		b.change(label("x"))
		b.settle()
		b.wantCalls(2, "it is cleaned up, and waits for others")
	})
}

func TestCleanupIsRepeatedUntilDone(t *testing.T) {
	bubble(t, func(b *bench) {
		c := b.cleaner(&cleaner{cleanup: func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			switch n {
			case 2:
				return reconcile.After(time.Hour), nil
			case 3:
				return reconcile.Retry(errors.New("not yet"))
			}
			return reconcile.Done, nil
		}})
		b.put("web")
		b.start()
		b.delete("web")
		testbed.Settle(59 * time.Minute)
		b.wantCalls(2, "After keeps the finalizer")
		testbed.Settle(time.Hour)
		b.wantCalls(4, "an error keeps it, too")
		if testbed.Stored(b.server, web) != nil {
			t.Error("the object still exists")
		}
		if s := c.Describe(0).Counts; s != (inspect.Counts{}) {
			t.Errorf("something is left: %+v", s)
		}
	})
}

func TestFinalizerRaces(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		prepare func(b *bench)
		cleanup func(b *bench)
		deleted bool // before the start
		calls   int
	}{
		{reason: "the object is deleted before it has the finalizer", deleted: true, prepare: func(b *bench) {
			b.put("web", func(g *gateway) { g.Finalizers = []string{"test.fairlead.io/other"} })
		}, calls: 0},
		{reason: "the object vanishes during Cleanup", prepare: func(b *bench) { b.put("web") }, cleanup: func(b *bench) {
			if err := b.server.Remove(testbed.Gateways, "a", "web"); err != nil {
				b.t.Error(err)
			}
		}, calls: 2},
		{reason: "another client removes it, and the removal is refused as invalid", prepare: func(b *bench) {
			b.put("web", func(g *gateway) { g.Finalizers = []string{"test.fairlead.io/other"} })
		}, cleanup: func(b *bench) {
			b.server.On(apiserver.Match{Verb: "patch", Times: 1}, apiserver.Answer(apiserver.Failure(422)))
			b.change(func(u *unstructured.Unstructured) { u.SetFinalizers([]string{"test.fairlead.io/other"}) })
		}, calls: 2},
		{reason: "two controllers remove their finalizers concurrently", prepare: func(b *bench) {
			b.put("web", func(g *gateway) { g.Finalizers = []string{"test.fairlead.io/one", finalizer, "test.fairlead.io/two"} })
		}, cleanup: func(b *bench) {
			hold := b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
			b.change(func(u *unstructured.Unstructured) { u.SetFinalizers([]string{finalizer, "test.fairlead.io/two"}) })
			go func() { <-time.After(time.Minute); hold.Release() }()
		}, calls: 2},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				c := b.cleaner(&cleaner{cleanup: func(context.Context, int, *gateway) (reconcile.Result, error) {
					tc.cleanup(b)
					return reconcile.Done, nil
				}})
				tc.prepare(b)
				if tc.deleted {
					b.delete("web")
				}
				b.start()
				if !tc.deleted {
					b.delete("web")
				}
				testbed.Settle(5 * time.Minute)
				b.wantCalls(tc.calls, tc.reason)
				if f := c.Failures(); len(f) != 0 {
					t.Errorf("failures are %v", f)
				}
				if g := testbed.Stored(b.server, web); g != nil && slices.Contains(g.Finalizers, finalizer) {
					t.Errorf("finalizers are %v", g.Finalizers)
				}
			})
		})
	}
}

// An allocation that Cleanup does not release keeps the finalizer.
func TestFinalizerStaysDuringAnAllocation(t *testing.T) {
	bubble(t, func(b *bench) {
		released := 0
		c := b.cleaner(&cleaner{
			do: func(ctx context.Context, _ int, g *gateway) (reconcile.Result, error) {
				ip, err := alloc.Once(ctx, b.client(), g, "ip",
					func(_ context.Context, key string) (string, error) { return "ip-of-" + key, nil })
				if err != nil {
					return reconcile.Retry(err)
				}
				return reconcile.Done, client.ModifyStatus(ctx, b.client(), g,
					func(g *gateway) error { g.Status.Note = map[string]string{"ip": ip}; return nil })
			},
			cleanup: func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
				if n == 2 {
					return reconcile.Done, nil // not released
				}
				return reconcile.Done, alloc.Release(ctx, b.client(), g, "ip",
					func(context.Context, string, string) error { released++; return nil })
			},
		})
		b.put("web")
		b.start()
		b.wantCalls(1, "intent, value and note are echoes")
		if g := testbed.Stored(b.server, web); g.Status.Allocated["ip"].Value == "" ||
			g.Status.Note["ip"] != g.Status.Allocated["ip"].Value {
			t.Errorf("the status is %+v", g.Status)
		}
		b.delete("web")
		b.settle()
		if n := b.count(); n < 2 {
			t.Fatal("no cleanup")
		}
		testbed.Settle(time.Minute)
		b.wantCalls(3, "the second cleanup releases it")
		if released != 1 || testbed.Stored(b.server, web) != nil || len(c.Failures()) != 0 {
			t.Errorf("released %d times; failures are %v", released, c.Failures())
		}
	})
}
