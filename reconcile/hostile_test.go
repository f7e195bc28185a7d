package reconcile_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/internal/testlog"
	"github.com/fairlead-io/fairlead/reconcile"
)

func conflictError() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "gateways"}, "web", errors.New("too late"))
}

func apiError(code, retryAfter int) error {
	e := apierrors.NewTooManyRequests("slow down", retryAfter)
	e.ErrStatus.Code = int32(code)
	return e
}

// logbook is a log that tests can read.
type logbook struct{ testlog.Book }

func (l *logbook) option() reconcile.Option {
	return reconcile.Logger(l.Logger())
}

// A reconciler that fails in an odd way is reported with its key, and other reconciliations continue.
func TestHostileReconcilers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		do     func() error
		check  func(error) bool
	}{
		{"panic", func() error { panic("ouch") }, func(err error) bool {
			var p *reconcile.PanicError
			return errors.As(err, &p) && p.Value == "ouch" && strings.Contains(string(p.Stack), "hostile_test.go")
		}},
		{"panic with an error", func() error { panic(errors.ErrUnsupported) }, func(err error) bool {
			return errors.Is(err, errors.ErrUnsupported)
		}},
		{"end of the goroutine", func() error { runtime.Goexit(); return nil }, func(err error) bool {
			return strings.Contains(err.Error(), "the reconciler ended its goroutine")
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				var failures []reconcile.Failure
				b.controller(func(_ context.Context, n int, g *gateway) (reconcile.Result, error) {
					if g.Name == "web" {
						return reconcile.Done, tc.do()
					}
					return reconcile.Done, nil
				}, reconcile.Workers(1), reconcile.OnFailure(func(f reconcile.Failure) {
					failures = append(failures, f)
					panic("in OnFailure")
				}),
					reconcile.MaxAttempts(3))
				b.put("web")
				b.start()
				b.put("other")
				testbed.Settle(time.Hour)
				b.wantCalls(4, "three attempts, and the other object")
				if len(failures) != 3 || failures[0].Key != web || !tc.check(failures[0].Err) {
					t.Errorf("failures are %v", failures)
				}
			})
		})
	}
}

func TestNeverReturns(t *testing.T) {
	bubble(t, func(b *bench) {
		var log logbook
		release := make(chan struct{})
		b.controller(func(_ context.Context, n int, g *gateway) (reconcile.Result, error) {
			if g.Name == "web" && n == 1 {
				<-release
			}
			return reconcile.Done, nil
		}, reconcile.Stuck(time.Minute), log.option())
		b.put("web")
		b.start()
		b.put("other")
		b.change(size(2))
		testbed.Settle(10 * time.Minute)
		b.wantCalls(2, "the others go on; it is not overlapped")
		if n := strings.Count(log.String(), "does not return"); n != 4 {
			t.Errorf("reported %d times in ten minutes, want after 1, 2, 4 and 8:\n%s", n, log.String())
		}
		if s := log.String(); !strings.Contains(s, "key=a/web") || !strings.Contains(s, "TestNeverReturns") {
			t.Errorf("the report lacks the key or the stack:\n%s", s)
		}
		close(release)
		b.settle()
		b.wantCalls(3, "it has returned")
	})
}

func TestRequestsAfterTheReturn(t *testing.T) {
	bubble(t, func(b *bench) {
		late := make(chan error, 1)
		returned := make(chan struct{})
		b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			go func() {
				<-returned
				late <- b.countUp(context.WithoutCancel(ctx), g)
			}()
			return reconcile.Done, nil
		})
		b.put("web")
		b.start()
		close(returned)
		if err := <-late; !errors.Is(err, client.ErrFenced) ||
			!strings.Contains(err.Error(), "the reconciliation has returned") {
			t.Errorf("a write after the return: %v", err)
		}
	})
}

// The object belongs to the reconciler. Changes of shared objects are detected.
func TestChangesOfObjects(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			g.Spec.Size, g.Labels = 1000, map[string]string{"wrong": "yes"}
			shared, err := client.Get[gateway](ctx, b.client(), web)
			if err == nil && (shared.Spec.Size == 1000 || len(shared.Labels) > 0) {
				t.Error("a change of the reconciler's own copy is visible to others")
			}
			return reconcile.Done, err
		})
		b.put("web")
		b.start()
		b.wantCalls(1, "start")
		if got := testbed.Stored(b.server, web); got.Spec.Size != 1 {
			t.Errorf("the server has size %d", got.Spec.Size)
		}
	})
}

// A kind without a watch can be read and written, at the cost of requests.
func TestWritesToAnUnwatchedKind(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			cm := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "made"},
				Data:       map[string]string{"n": "1"},
			}
			if err := reconcile.Own(b.client(), g, cm); err != nil {
				return reconcile.Retry(err)
			}
			if err := b.client().Apply(ctx, cm); err != nil {
				return reconcile.Retry(err)
			}
			var back corev1.ConfigMap
			return reconcile.Done, b.client().Get(ctx, client.KeyOf(cm), &back)
		})
		b.put("web")
		b.start()
		b.wantCalls(1, "no event comes of it")
		if n := b.server.Log().Count(apiserver.Match{Verb: "get", Resource: "configmaps"}); n != 1 {
			t.Errorf("%d reads", n)
		}
	})
}

func TestWrongDeclarations(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason, want string
		declare      func(h reconcile.Host)
	}{
		{"no reconciler", "no reconciler", func(h reconcile.Host) { reconcile.New[gateway](h, "x", nil) }},
		{"a typed nil", "the reconciler is a nil *reconcile_test.pointed", func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", (*pointed)(nil))
		}},
		{"an invalid namespace", `invalid namespace "Prod_1"`, func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop, reconcile.Primary(reconcile.From(cache.Namespaces("fine", "Prod_1"))))
		}},
		{"an invalid label selector", `cannot parse label selector "a in b"`, func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop,
				reconcile.Owns[corev1.ConfigMap](reconcile.From(cache.Labels("a in b"))))
		}},
		{"an invalid field selector", `cannot parse field selector "a"`, func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop,
				reconcile.Owns[corev1.ConfigMap](reconcile.From(cache.Fields("a"))))
		}},
		{"no name", "no name", func(h reconcile.Host) { reconcile.New[gateway](h, "", noop) }},
		{"a name twice", "unique", func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop)
			reconcile.New[gateway](h, "x", noop)
		}},
		{"a finalizer without a domain", "domain", func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop, reconcile.Finalizer("mine"))
		}},
		{"an unknown kind", "no kind is registered", func(h reconcile.Host) {
			reconcile.New[stranger](h, "x", reconcile.Func[stranger](func(context.Context, *stranger) (reconcile.Result, error) {
				return reconcile.Done, nil
			}))
		}},
		{
			"a filter of another type", "a function takes v1.Secret, and the objects of the watch are v1.ConfigMap",
			func(h reconcile.Host) {
				reconcile.New[gateway](h, "x", noop,
					reconcile.Owns[corev1.ConfigMap](reconcile.If(func(*corev1.Secret) bool { return true })))
			},
		},
		{"a comparison of another type", "a function takes v1.Secret", func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop,
				reconcile.Primary(reconcile.IfChanged(func(_, _ *corev1.Secret) bool { return true })))
		}},
		{"a mapping that is nil", "the function of Watches is nil", func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop, reconcile.Watches[corev1.ConfigMap](nil))
		}},
		{"a filter that is nil", "the function of If is nil", func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop, reconcile.Primary(reconcile.If[gateway](nil)))
		}},
		{"the position", "reconcile/hostile_test.go:", func(h reconcile.Host) { reconcile.New[gateway](h, "x", nil) }},
		{"metadata without a kind", "needs its Kind", func(h reconcile.Host) {
			reconcile.New[gateway](h, "x", noop, reconcile.Owns[metav1.PartialObjectMetadata]())
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				h := b.process()
				tc.declare(h)
				h.Start(b.ctx)
				b.settle()
				err := h.Stop()
				if !errors.Is(err, reconcile.ErrInvalid) || !strings.Contains(err.Error(), tc.want) ||
					!strings.Contains(err.Error(), "controller") {
					t.Errorf("the host returns %v", err)
				}
				b.host.Start(b.ctx)
			})
		})
	}
}

type stranger struct{ gateway }

// pointed is a reconciler with state.
type pointed struct{ calls int }

func (p *pointed) Reconcile(context.Context, *gateway) (reconcile.Result, error) {
	p.calls++
	return reconcile.Done, nil
}

var noop = reconcile.Func[gateway](func(context.Context, *gateway) (reconcile.Result, error) {
	return reconcile.Done, nil
})

// A controller does not start before its watches are listed, and the log names the missing list.
func TestWaitsForTheFirstList(t *testing.T) {
	bubble(t, func(b *bench) {
		var log logbook
		forbidden := b.server.On(apiserver.Match{Resource: "configmaps"}, apiserver.Answer(apiserver.Failure(403)))
		b.controller(nil, reconcile.Owns[corev1.ConfigMap](), log.option())
		b.put("web")
		b.start()
		testbed.Settle(2 * time.Minute)
		b.wantCalls(0, "a watch is forbidden")
		if !strings.Contains(log.String(), "watch=ConfigMap") {
			t.Errorf("the log does not name the list:\n%s", log.String())
		}
		forbidden.Off()
		testbed.Settle(10 * time.Minute)
		b.wantCalls(1, "it is allowed now")
	})
}

// A change of a shared object is detected, and the changed object is not written.
func TestChangesOfSharedObjects(t *testing.T) {
	bubble(t, func(b *bench) {
		b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			shared, err := client.Get[gateway](ctx, b.client(), web)
			if err != nil {
				return reconcile.Retry(err)
			}
			shared.Spec.Size = 1000
			if _, err := client.Get[gateway](ctx, b.client(), web); err != nil {
				return reconcile.Retry(err)
			}
			own := &gateway{}
			if err := b.client().Get(ctx, web, own); err != nil || own.Spec.Size != 1 {
				t.Errorf("an own copy has size %d, %v", own.Spec.Size, err)
			}
			return reconcile.Done, client.Modify(ctx, b.client(), own,
				func(g *gateway) error { g.Labels = map[string]string{"l": "x"}; return nil })
		})
		b.put("web")
		b.start()
		h := b.host.Watch(testbed.GroupVersion.WithKind("Gateway"))
		defer h.Release()
		if n := h.Mutations(); n != 1 {
			t.Errorf("%d changes of shared objects were detected, want 1", n)
		}
		if got := testbed.Stored(b.server, web); got.Spec.Size != 1 || got.Labels["l"] != "x" {
			t.Errorf("the server has size %d and labels %v", got.Spec.Size, got.Labels)
		}
	})
}

// A write of spec and status at once fails with the key of the object. It fails before any write, or after the spec is
// written.
func TestSpecAndStatusAtOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		both := func(g *gateway) error { g.Spec.Size, g.Status.Count = 9, 9; return nil }
		c := b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			if n == 1 {
				return reconcile.Terminal(client.ModifyStatus(ctx, b.client(), g, both))
			}
			return reconcile.Terminal(client.Modify(ctx, b.client(), g, both))
		})
		b.put("web")
		b.start()
		for _, size := range []int{1, 9} {
			if f := c.Failures(); len(f) != 1 || f[0].Key != web || !errors.Is(f[0].Err, client.ErrStatusApart) {
				t.Errorf("failures are %v", f)
			}
			if got := testbed.Stored(b.server, web); got.Spec.Size != size || got.Status.Count != 0 {
				t.Errorf("the server has size %d and count %d, want %d and 0", got.Spec.Size, got.Status.Count, size)
			}
			if size == 1 {
				b.change(func(u *unstructured.Unstructured) { _ = unstructured.SetNestedField(u.Object, "new", "spec", "ref") })
				b.settle()
			}
		}
	})
}

// An own write that the watch does not deliver in time makes the next reconciliation read from the server.
func TestAnOverdueObjectIsReadLive(t *testing.T) {
	bubble(t, func(b *bench) {
		var hold *apiserver.Hold
		b.controller(func(ctx context.Context, n int, g *gateway) (reconcile.Result, error) {
			if n > 1 {
				return reconcile.Done, nil
			}
			hold = b.server.HoldEvents(apiserver.Match{Resource: "gateways"})
			if err := b.countUp(ctx, g); err != nil {
				return reconcile.Retry(err)
			}
			b.change(size(2))
			return reconcile.After(61 * time.Second), nil
		})
		b.put("web")
		b.start()
		testbed.Settle(65 * time.Second)
		b.wantCalls(2, "the watch is still held")
		if got := b.last(); got.obj.Spec.Size != 2 || got.obj.Status.Count != 1 {
			t.Errorf("the second reconciliation saw size %d and count %d", got.obj.Spec.Size, got.obj.Status.Count)
		}
		hold.Release()
		b.settle()
	})
}

// noElection is a leadership that always fails.
type noElection struct{ err error }

func (l noElection) Lead(context.Context) (context.Context, func(), error) { return nil, nil, l.err }
func (l noElection) Fence(context.Context) error                           { return l.err }

// A controller that can never lead ends the host with an error, instead of waiting for ever.
func TestEndedElection(t *testing.T) {
	bubble(t, func(b *bench) {
		h, broken := b.process(), errors.New("broken")
		reconcile.New[gateway](h, "x", noop, reconcile.Leader(noElection{broken}))
		h.Start(b.ctx)
		b.settle()
		if err := h.Stop(); !errors.Is(err, broken) || !strings.Contains(err.Error(), `controller "x"`) {
			t.Errorf("the host returns %v", err)
		}
		b.host.Start(b.ctx)
	})
}
