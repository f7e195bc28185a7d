package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
)

// TestCaller: a reconciliation reads the object, keeps the finalizer while the reconciler runs, and always finishes.
func TestCaller(t *testing.T) {
	t.Parallel()
	const finalizerName = "example.com/gateways"
	failed := errors.New("failed")
	exit := runtime.Goexit
	for _, tc := range []struct {
		reason   string
		missing  bool // the object does not exist
		has      bool // the object has the finalizer
		deleting bool
		do       func(ctx context.Context) (Result, error) // the reconciler or its Cleanup
		stop     error                                     // stops the reconciliation beforehand
		want     []string                                  // calls
		err      error
		res      Result
		finally  []string // finalizers on the server; nil: the object does not exist
	}{
		{reason: "missing", missing: true, want: []string{"deleted", "finish"}},
		{
			reason: "new", want: []string{"reads", "do with finalizer", "finish"}, res: After(time.Minute),
			do: func(context.Context) (Result, error) { return After(time.Minute), nil }, finally: []string{finalizerName},
		},
		{
			reason: "failure", has: true, want: []string{"reads", "do with finalizer", "finish"}, err: failed,
			do: func(context.Context) (Result, error) { return Done, failed }, finally: []string{finalizerName},
		},
		{
			reason: "deadline", has: true, want: []string{"reads", "do with finalizer", "finish"}, err: ErrDeadline,
			do:      func(ctx context.Context) (Result, error) { <-ctx.Done(); return Done, context.Cause(ctx) },
			finally: []string{finalizerName},
		},
		{
			reason: "stopped", has: true, want: []string{"reads", "do with finalizer", "finish"}, err: ErrPreempted,
			stop: ErrPreempted, do: func(context.Context) (Result, error) { return Done, failed },
			finally: []string{finalizerName},
		},
		{
			reason: "Goexit", has: true, want: []string{"reads", "do with finalizer", "finish"}, err: errGoexit,
			do: func(context.Context) (Result, error) { exit(); return Done, nil }, finally: []string{finalizerName},
		},
		{
			reason: "deleted", has: true, deleting: true, want: []string{"reads", "clean with finalizer", "deleted", "finish"},
			do: func(context.Context) (Result, error) { return Done, nil },
		},
		{
			reason: "cleanup fails", has: true, deleting: true, want: []string{"reads", "clean with finalizer", "finish"},
			do: func(context.Context) (Result, error) { return Done, failed }, err: failed, finally: []string{finalizerName},
		},
		{
			reason: "cleanup continues", has: true, deleting: true, want: []string{"reads", "clean with finalizer", "finish"},
			do: func(context.Context) (Result, error) { return After(time.Minute), nil }, res: After(time.Minute),
			finally: []string{finalizerName},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := testbed.Server(t, apiserver.Options{})
				defer server.Close()
				host := testbed.NewHost(t, server.Config(), testbed.Mapper(testbed.Resources()))
				host.Start(t.Context())
				defer host.Stop()
				k := Key{Namespace: "a", Name: "web"}
				if !tc.missing {
					g := testbed.New("a", "web")
					if tc.has {
						g.Finalizers = []string{finalizerName}
					}
					testbed.Put(t, server, g)
				}
				kind := testbed.GroupVersion.WithKind("Gateway")
				objects := host.Watch(kind)
				defer objects.Release()
				if tc.deleting {
					if err := host.Client().Delete(t.Context(), testbed.New("a", "web")); err != nil {
						t.Fatal(err)
					}
					testbed.Settle(time.Second)
				}
				var calls []string
				user := func(name string) func(context.Context, client.Object) (Result, error) {
					return func(ctx context.Context, obj client.Object) (Result, error) {
						if slices.Contains(obj.GetFinalizers(), finalizerName) {
							name += " with finalizer"
						}
						calls = append(calls, name)
						return tc.do(ctx)
					}
				}
				w := workOf[testbed.Gateway](Func[testbed.Gateway](nil))
				w.do, w.clean = user("do"), user("clean")
				w.deleted = func(Key) { calls = append(calls, "deleted") }
				m := newMetrics("gateways")
				var end completion
				c := &caller{
					client: host.Client(), object: w, main: &watch{kind: kind}, deadline: time.Hour, stuck: -1,
					bindings: &bindings{owner: "reconcile/gateways", finalizer: finalizerName, controller: "gateways"},
					tracer:   &tracer{}, metrics: m, log: slog.New(slog.DiscardHandler),
					reads: func(r *reconciliation, seen facts) { r.facts = seen; calls = append(calls, "reads") },
					finish: func(_ *reconciliation, e completion) verdict {
						calls, end = append(calls, "finish"), e
						return verdict{outcome: "any"}
					},
					report: func(*reconciliation, completion, verdict) {},
				}
				c.finalizer = &finalizer{name: finalizerName, change: w.finalize, read: c.read}
				ctx, cancel := context.WithCancelCause(t.Context())
				r := &reconciliation{store: objects.Store, key: k, term: t.Context(), cancel: cancel}
				if tc.stop != nil {
					r.stop(tc.stop)
				}
				returned := make(chan struct{})
				go func() { defer close(returned); c.perform(ctx, r) }()
				<-returned
				if !slices.Equal(calls, tc.want) {
					t.Errorf("calls are %q, want %q", calls, tc.want)
				}
				if !errors.Is(end.err, tc.err) || end.res != tc.res || end.existed == tc.missing {
					t.Errorf("the reconciliation ends with %+v", end)
				}
				if isAbort(end.err) != (tc.stop != nil) {
					t.Errorf("aborted: %v", isAbort(end.err))
				}
				if !errors.Is(r.fence(), errReturned) && tc.stop == nil {
					t.Error("requests are allowed after the end")
				}
				var finalizers []string
				if g := testbed.Stored(server, k); g != nil {
					finalizers = g.Finalizers
				}
				if !slices.Equal(finalizers, tc.finally) {
					t.Errorf("the finalizers are %q, want %q", finalizers, tc.finally)
				}
			})
		})
	}
}
