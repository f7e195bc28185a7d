package flow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

func TestALongWaitEndsTheTrace(t *testing.T) {
	t.Parallel()
	wait := func(d time.Duration) Node[packet] {
		return Step("wait", func(_ context.Context, f *fib) Next { return f.Delay(d).Then("after") })
	}
	for _, tt := range []struct {
		reason string
		wait   time.Duration
		long   bool
	}{
		{"a minute is not a long wait", tracing.Life, false},
		{"more than a minute is one", tracing.Life + time.Second, true},
		{"so is an hour", time.Hour, true},
	} {
		made := spans.New()
		bubble(t, EngineOptions{Tracer: made.Tracer("test")}, func(t *testing.T, e *Engine) {
			begun := time.Now()
			h := start(t, e, New("f", wait(tt.wait), note("after")), &packet{}, StartOptions{
				Key: "k", Trace: TraceOptions{Attributes: []attribute.KeyValue{attribute.String("own", "yes")}},
			})
			if tt.wait == time.Hour {
				select {
				case <-h.Done():
				case <-time.After(2*tracing.Life + time.Second):
				}
				if open := made.Named("f"); len(open) != 1 {
					t.Fatalf("%s: while it waits, %d spans of the fiber have ended, want the first one", tt.reason, len(open))
				}
			}
			h.Wait(t.Context())
			all, before, after := made.Named("f"), made.Named("wait"), made.Named("after")
			if len(before) != 1 || len(after) != 1 {
				t.Fatalf("%s: %d and %d spans of steps", tt.reason, len(before), len(after))
			}
			first, last := all[0], all[len(all)-1]
			if !spans.IsChild(before[0], first) || !spans.IsChild(after[0], last) || spans.Value(last, "own") != "yes" ||
				spans.Value(last, "flow.status") != "completed" {
				t.Errorf("%s: steps are not below their fiber, or that has not %v", tt.reason, last.Attributes())
			}
			if !tt.long {
				if len(all) != 1 {
					t.Errorf("%s: %d spans of the fiber", tt.reason, len(all))
				}
				return
			}
			if len(all) != 2 || !spans.Links(last, first) || spans.Value(first, "flow.status") != "parked" ||
				first.EndTime().Sub(begun) > time.Second {
				t.Errorf("%s: %d spans, the second links to %v, the first ended after %v as %s", tt.reason, len(all),
					last.Links(), first.EndTime().Sub(begun), spans.Value(first, "flow.status"))
			}
		})
	}
}

// TestTraceOverARestart: the span after a restart links to the span before it, although its start has another trace.
func TestTraceOverARestart(t *testing.T) {
	t.Parallel()
	made, kept, again := spans.New(), &Memory{}, errors.New("once more")
	down := true
	fl := New("f", Step("call", func(_ context.Context, f *fib) Next {
		if down {
			return f.Fail(again)
		}
		return f.Next()
	}, Retry(Backoff{Base: time.Second})))
	bubble(t, EngineOptions{Tracer: made.Tracer("test")}, func(t *testing.T, e *Engine) {
		start(t, e, fl, &packet{}, StartOptions{Key: "k", Positions: kept})
		time.Sleep(500 * time.Millisecond) // within the back-off, on the clock of the bubble
	})
	first := made.Named("f")
	if len(first) != 1 {
		t.Fatalf("%d spans", len(first))
	}
	down = false
	bubble(t, EngineOptions{Tracer: made.Tracer("test")}, func(t *testing.T, e *Engine) {
		ctx, request := made.Tracer("test").Start(t.Context(), "reconcile")
		h, err := fl.Start(ctx, e, &packet{}, StartOptions{Key: "k", Positions: kept})
		if err != nil {
			t.Fatal(err)
		}
		h.Wait(t.Context())
		request.End()
	})
	all := made.Named("f")
	if len(all) != 2 || all[1].Parent().TraceID() == first[0].SpanContext().TraceID() || len(all[1].Links()) != 1 ||
		!all[1].Links()[0].SpanContext.Equal(first[0].SpanContext().WithRemote(true)) ||
		all[1].Parent().SpanID() != made.Named("reconcile")[0].SpanContext().SpanID() {
		t.Fatalf("after the restart: parent %v, links %v", all[1].Parent(), all[1].Links())
	}
}

// TestUnsampledTraceIsNotKept: a link to such a trace would lead nowhere.
func TestUnsampledTraceIsNotKept(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		opt    EngineOptions
		kept   bool
	}{
		{"sampled", EngineOptions{Tracer: spans.New().Tracer("test")}, true},
		{"not sampled", EngineOptions{
			Tracer: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test"),
		}, false},
		{"no tracer", EngineOptions{}, false},
	} {
		kept := &Memory{}
		bubble(t, tt.opt, func(t *testing.T, e *Engine) {
			start(t, e, New("f", Step("a", func(_ context.Context, f *fib) Next { return f.Delay(time.Hour) })), &packet{},
				StartOptions{Key: "k", Positions: kept})
			time.Sleep(time.Second) // on the clock of the bubble
		})
		p, found, err := kept.Load(t.Context(), "k")
		if err != nil || !found || (p.Trace != "") != tt.kept {
			t.Errorf("%s: %q is kept, %t, %v", tt.reason, p.Trace, found, err)
		}
	}
}

// TestALateStartLinks: the span of a fiber that has waited at the gate for long links to the span of its starter. So
// does the span of a child whose parent span has ended long ago.
func TestALateStartLinks(t *testing.T) {
	t.Parallel()
	made := spans.New()
	tracer := made.Tracer("test")
	bubble(t, EngineOptions{Tracer: tracer}, func(t *testing.T, e *Engine) {
		slow := New("slow", Step("a", func(_ context.Context, f *fib) Next { return f.Delay(10 * time.Minute) }))
		start(t, e, slow, &packet{}, StartOptions{Key: "k"})
		time.Sleep(time.Second) // so that it has started, on the clock of the bubble
		ctx, request := tracer.Start(t.Context(), "request")
		h, err := New("next", note("b")).Start(ctx, e, &packet{}, StartOptions{Key: "k", Mode: Coalesce})
		if err != nil {
			t.Fatal(err)
		}
		request.End()
		h.Wait(t.Context())
		start(t, e, New("parent", children("kids", []fstep{
			func(_ context.Context, f *fib) Next { return f.Delay(10 * time.Minute) }, stay,
		}, Limit(1))), &packet{}, StartOptions{}).Wait(t.Context())
	})
	if next, request := made.Named("next"), made.Named("request"); len(next) != 1 || !spans.Links(next[0], request[0]) {
		t.Errorf("after the gate: parent %v, links %v", next[0].Parent(), next[0].Links())
	}
	parents, kids := made.Named("parent"), made.Named("child")
	if len(parents) != 2 || !spans.Links(parents[1], parents[0]) {
		t.Fatalf("%d spans of the parent", len(parents))
	}
	var begun []spans.Span // the first span of each child
	for _, kid := range kids {
		if spans.IsChild(kid, parents[0]) || spans.Links(kid, parents[0]) {
			begun = append(begun, kid)
		}
	}
	if len(begun) != 2 || !spans.IsChild(begun[0], parents[0]) || !spans.Links(begun[1], parents[0]) {
		t.Errorf("the first child is one, the second links: %v", begun)
	}
}

func TestRetrace(t *testing.T) {
	t.Parallel()
	made := spans.New()
	tracer := made.Tracer("test")
	fl := New("f", Step("a", func(ctx context.Context, f *fib) Next {
		request, next := tracer.Start(context.Background(), "next request")
		defer next.End()
		ctx = Retrace(ctx, request, TraceOptions{Attributes: []attribute.KeyValue{attribute.String("request", "2")}})
		_, work := tracer.Start(ctx, "work")
		work.End()
		return f.Next()
	}), note("b"))
	bubble(t, EngineOptions{Tracer: tracer}, func(t *testing.T, e *Engine) {
		start(t, e, fl, &packet{}, StartOptions{}).Wait(t.Context())
	})
	fibers, steps, b := made.Named("f"), made.Named("a"), made.Named("b")
	if len(fibers) != 2 || len(steps) != 2 || len(b) != 1 {
		t.Fatalf("%d fibers, %d and %d steps", len(fibers), len(steps), len(b))
	}
	if !spans.IsChild(fibers[1], made.Named("next request")[0]) || !spans.IsChild(steps[0], fibers[0]) ||
		!spans.IsChild(steps[1], fibers[1]) || !spans.IsChild(b[0], fibers[1]) ||
		!spans.IsChild(made.Named("work")[0], steps[1]) {
		t.Error("the next steps are not below the next request")
	}
	if spans.Value(fibers[0], "request") != "" || spans.Value(fibers[1], "request") != "2" ||
		spans.Value(fibers[0], "flow.status") != "parked" || spans.Value(fibers[1], "flow.status") != "completed" {
		t.Errorf("attributes: %v, then %v", fibers[0].Attributes(), fibers[1].Attributes())
	}
	ctx := t.Context()
	if Retrace(ctx, ctx, TraceOptions{}) != ctx {
		t.Error("outside of a step the span has no effect")
	}
}

func TestAnEngineInheritsItsTracer(t *testing.T) {
	t.Parallel()
	own, host := spans.New(), spans.New()
	for _, tt := range []struct {
		opt  EngineOptions
		want *spans.Recorder
	}{{EngineOptions{}, host}, {EngineOptions{Tracer: own.Tracer("own")}, own}} {
		bubble(t, tt.opt, func(t *testing.T, e *Engine) {
			e.Inherit(nil, nil, false)
			e.Inherit(nil, host, false)
			e.Inherit(nil, spans.New(), false)
			start(t, e, New("f", note("a")), &packet{}, StartOptions{}).Wait(t.Context())
		})
		if len(tt.want.Named("f")) != 1 {
			t.Errorf("%d spans where they should be", len(tt.want.Named("f")))
		}
	}
	if len(host.Named("f")) != 1 || host.Named("f")[0].InstrumentationScope().Name != tracing.Scope+"flow" {
		t.Error("the scope is not that of the package")
	}
}

// TestTheStatusOfAFiberSpan: a failure is an error, a cancellation is not, and a step may add attributes.
func TestTheStatusOfAFiberSpan(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		step   func(ctx context.Context, f *fib) Next
		want   codes.Code
		said   string // attribute "outcome"
	}{
		"Failed": {
			reason: "the flow has failed", want: codes.Error,
			step: func(_ context.Context, f *fib) Next { return f.Fail(errors.New("no")) },
		},
		"Cancelled": {
			reason: "the engine was closed", want: codes.Unset,
			step: func(_ context.Context, f *fib) Next { return f.Delay(time.Hour) },
		},
		"SaidByTheStep": {
			reason: "the flow succeeds, and its object has failed", want: codes.Error, said: "lost",
			step: func(ctx context.Context, f *fib) Next {
				span := FiberSpan(ctx)
				span.SetAttributes(attribute.String("outcome", "lost"))
				span.SetStatus(codes.Error, "lost")
				return f.Delay(30 * time.Second) // not a long wait: the span stays open
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := spans.New()
			bubble(t, EngineOptions{Tracer: made.Tracer("test")}, func(t *testing.T, e *Engine) {
				h := start(t, e, New("f", Step("a", tt.step)), &packet{}, StartOptions{})
				time.Sleep(time.Minute)
				if err := e.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				h.Wait(t.Context())
			})
			s := made.Named("f")[0]
			if s.Status().Code != tt.want || spans.Value(s, "outcome") != tt.said {
				t.Errorf("%s: status %v, attributes %v", tt.reason, s.Status(), s.Attributes())
			}
			if step := made.Named("a")[0]; spans.Value(step, "outcome") != "" {
				t.Errorf("%s: the span of the step has attributes of the fiber", tt.reason)
			}
		})
	}
	if FiberSpan(t.Context()).IsRecording() {
		t.Error("outside of a step there is no span of a fiber")
	}
}

// TestALongErrorIsCut: the status of a span has a bounded length.
func TestALongErrorIsCut(t *testing.T) {
	t.Parallel()
	made := spans.New()
	bubble(t, EngineOptions{Tracer: made.Tracer("test")}, func(t *testing.T, e *Engine) {
		start(t, e, New("f", Step("a", func(_ context.Context, f *fib) Next {
			return f.Fail(errors.New(strings.Repeat("x", 1<<20)))
		})), &packet{}, StartOptions{}).Wait(t.Context())
	})
	for _, s := range made.Ended() {
		if got := s.Status(); got.Code != codes.Error || len(got.Description) > 2*maxError {
			t.Errorf("%s: %d bytes", s.Name(), len(got.Description))
		}
	}
}

// TestNoTracerNoCost: without a tracer a fiber keeps no tracing state and needs no more allocations, even within a
// span.
func TestNoTracerNoCost(t *testing.T) {
	e := NewEngine(EngineOptions{Workers: 1})
	defer e.Close(context.Background())
	fl := New("f", note("a"))
	inSpan, span := spans.New().Tracer("test").Start(t.Context(), "request")
	defer span.End()
	opt := StartOptions{Trace: TraceOptions{Links: []trace.Link{{SpanContext: span.SpanContext()}}}}
	costs := func(ctx context.Context, opt StartOptions) float64 {
		return spans.Allocs(func() {
			h, err := fl.Start(ctx, e, &packet{}, opt)
			if err != nil {
				t.Fatal(err)
			}
			h.Wait(context.Background())
			if h.f.tracing() != nil {
				t.Fatal("tracing state is kept")
			}
		})
	}
	if plain, traced := costs(t.Context(), StartOptions{}), costs(inSpan, opt); traced > plain {
		t.Errorf("%v allocations in a span, %v outside", traced, plain)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.spans.unset != nil {
		t.Error("an alarm for spans is set")
	}
}
