package reconcile_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestASpanPerReconciliation: each reconciliation has a root span above the spans of the reconciler, with its outcome.
func TestASpanPerReconciliation(t *testing.T) {
	bubble(t, func(b *bench) {
		made := spans.New()
		b.controller(func(ctx context.Context, n int, _ *gateway) (reconcile.Result, error) {
			_, work := made.Start(ctx, "work")
			defer work.End()
			switch n {
			case 1:
				return reconcile.Done, errors.New(strings.Repeat("no", 1<<20))
			case 2:
				panic("bad")
			}
			return reconcile.Done, nil
		}, reconcile.TracerProvider(made))
		b.put("web")
		b.start()
		<-time.After(time.Minute)
		all, work := made.Named("reconcile gateways"), made.Named("work")
		if len(all) != 3 || len(work) != 3 {
			t.Fatalf("%v", made.Names())
		}
		for i, s := range all {
			if s.Parent().IsValid() || !spans.IsChild(work[i], s) {
				t.Errorf("span %d is not a root, or not above the spans of the reconciler", i)
			}
		}
		attributes := map[string]string{}
		for _, a := range all[2].Attributes() {
			attributes[string(a.Key)] = a.Value.String()
		}
		if diff := cmp.Diff(map[string]string{
			"reconcile.controller": "gateways", "reconcile.kind": "Gateway.test.fairlead.io", "reconcile.name": "web",
			"k8s.namespace.name": "a", "reconcile.attempt": "3", "reconcile.reasons": attributes["reconcile.reasons"],
			"reconcile.outcome": "success",
		}, attributes); diff != "" || !strings.Contains(attributes["reconcile.reasons"], string(reconcile.Retried)) {
			t.Errorf("-want +got:\n%s\nreasons %s", diff, attributes["reconcile.reasons"])
		}
		for i, s := range all[:2] {
			if s.Status().Code != codes.Error || spans.Value(s, "reconcile.outcome") != string(reconcile.Retryable) ||
				len(s.Status().Description) > 2048 {
				t.Errorf("%d: %v %d bytes", i, s.Status().Code, len(s.Status().Description))
			}
		}
	})
}

// TestHangingReconciliationHasASpan: a reconciliation that hangs has a span, which ends when its goroutine
// ends.
func TestHangingReconciliationHasASpan(t *testing.T) {
	bubble(t, func(b *bench) {
		made := spans.New()
		b.controller(func(_ context.Context, n int, _ *gateway) (reconcile.Result, error) {
			if n == 1 {
				runtime.Goexit()
			}
			return reconcile.Done, nil
		}, reconcile.TracerProvider(made))
		b.put("web")
		b.start()
		<-time.After(time.Minute)
		if all := made.Named("reconcile gateways"); len(all) != 2 || all[0].Status().Code != codes.Error {
			t.Errorf("%v", made.Names())
		}
	})
}

// TestTheTraceOfAFiber: the spans of a fiber are below the reconciliation that has started it. After a long wait, and
// after a restart, they are in a new trace that links to the last one.
func TestTheTraceOfAFiber(t *testing.T) {
	bubble(t, func(b *bench) {
		made := spans.New()
		traced := reconcile.TracerProvider(made)
		var s script
		_, e := b.flows(&s, false, traced)
		b.put("web")
		b.start()
		if first := made.Named("a"); len(first) != 1 ||
			first[0].SpanContext().TraceID() != made.Named("reconcile gateways")[0].SpanContext().TraceID() {
			t.Fatalf("a step is not in the trace of the reconciliation: %v", made.Names())
		}
		<-time.After(2 * tracing.Life)
		fibers := made.Named("up")
		if len(fibers) != 1 || !spans.IsChild(fibers[0], made.Named("reconcile gateways")[0]) {
			t.Fatalf("the fiber that waits: %v", made.Names())
		}
		if kept := b.stored().Status.Flow; kept == nil ||
			!strings.Contains(kept.Trace, fibers[0].SpanContext().SpanID().String()) {
			t.Fatalf("the position keeps %+v", kept)
		}
		b.restart(e)
		s.hold.Set()
		_, e = b.flows(&s, false, traced)
		defer e.Close(context.Background())
		b.start()
		s.want(t, "after the restart", "a", "wait", "wait", "c")
		var again spans.Span
		for _, f := range made.Named("up") {
			if spans.Value(f, "flow.status") == "completed" {
				again = f
			}
		}
		if again == nil || !linksTo(again, fibers[0]) || !spans.IsChild(made.Named("c")[0], again) {
			t.Fatalf("after the restart: %v", made.Names())
		}
		if again.SpanContext().TraceID() == fibers[0].SpanContext().TraceID() {
			t.Error("the earlier trace continues")
		}
	})
}

func linksTo(s, to spans.Span) bool {
	for _, l := range s.Links() {
		if spans.Same(l.SpanContext, to) {
			return true
		}
	}
	return false
}
