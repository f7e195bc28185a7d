package outbox

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

var discard = slog.New(slog.DiscardHandler)

// TestSpans: each delivery has a span, in which Deliver is called. The span has the outcome and no text of the error.
func TestSpans(t *testing.T) {
	t.Parallel()
	made := spans.New()
	inside := map[string]trace.SpanContext{}
	r := newRun(&Relay{Outbox: &Outbox{}, TracerProvider: made, Deliver: func(ctx context.Context, e Entry) error {
		inside[e.ID] = trace.SpanContextFromContext(ctx)
		switch e.ID {
		case "rejected":
			return Reject(errors.New("secret"))
		case "retried":
			return errors.New("secret")
		}
		return nil
	}})
	r.Log = discard
	ctx, caller := made.Start(t.Context(), "program")
	defer caller.End()
	type attributes struct{ Outcome, Key, Attempt, Status, Description string }
	got := map[string]attributes{}
	for _, id := range []string{"delivered", "rejected", "retried"} {
		r.deliver(ctx, lease{Entry: Entry{ID: id, Key: "app/1", Attempt: 2}})
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	r.deliver(stopped, lease{Entry: Entry{ID: "interrupted", Key: "app/1", Attempt: 2}})
	for _, s := range made.Named("deliver") {
		id := spans.Value(s, "outbox.id")
		got[id] = attributes{
			spans.Value(s, "outbox.outcome"), spans.Value(s, "outbox.key"), spans.Value(s, "outbox.attempt"),
			s.Status().Code.String(), s.Status().Description,
		}
		if s.Parent().IsValid() || id != "interrupted" && !spans.Same(inside[id], s) {
			t.Errorf("%s: parent %v, inside %v", id, s.Parent(), inside[id])
		}
	}
	want := map[string]attributes{
		"delivered": {"delivered", "app/1", "2", "Unset", ""}, "rejected": {"rejected", "app/1", "2", "Error", ""},
		"retried": {"retried", "app/1", "2", "Error", ""}, "interrupted": {"interrupted", "app/1", "2", "Unset", ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestNoSpans: without a provider, a delivery allocates nothing for spans.
func TestNoSpans(t *testing.T) {
	deliver := func(tracing bool) float64 {
		r := &Relay{Outbox: &Outbox{}, Deliver: func(context.Context, Entry) error { return nil }}
		if tracing {
			r.TracerProvider = spans.Discard()
		}
		run := newRun(r)
		run.Log = discard
		one := lease{Entry: Entry{ID: "1", Attempt: 1}}
		return spans.Allocs(func() { run.deliver(t.Context(), one) })
	}
	without, with := deliver(false), deliver(true)
	r := newRun(&Relay{Outbox: &Outbox{}, Deliver: func(context.Context, Entry) error { return nil }})
	r.Log = discard
	one := lease{Entry: Entry{ID: "1", Attempt: 1}}
	bare := spans.Allocs(func() { r.attempt(t.Context(), one) })
	if without > bare || with <= without {
		t.Errorf("a delivery takes %v allocations, the attempt alone %v, and with spans %v", without, bare, with)
	}
}
