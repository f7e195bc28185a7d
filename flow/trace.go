package flow

import (
	"context"
	"runtime/pprof"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// TraceOptions adds links and attributes to the spans of a fiber. It has no effect without a tracer.
type TraceOptions struct {
	// Links are additional links of the first span of the fiber. Its parent is the span of the context of Start.
	Links []trace.Link
	// Attributes are additional attributes of each span of the fiber, but not of its steps. The engine does not modify
	// the slice.
	Attributes []attribute.KeyValue
}

// traced is the tracing state of a fiber. The fiber has a span from when it begins until it ends, or until it has been
// parked for longer than tracing.Life. The next span is then the root of a new trace, with a link to the previous span.
// traced belongs to the worker that runs the fiber. While the fiber is parked, Engine.mu guards it.
type traced struct {
	// from is the parent or link of the next span: the span of the starter or the parent fiber, later the last own
	// span.
	from   trace.SpanContext
	alive  int64 // when from was last open
	opt    TraceOptions
	span   trace.Span // of the fiber; nil if none is open
	step   trace.Span // of the running step; nil between steps
	parked int64      // when the fiber was parked; 0 after it was picked up
}

// tracer returns the tracer of the engine, or nil.
func (e *Engine) tracer() trace.Tracer {
	if t := e.traces.Load(); t != nil {
		return *t
	}
	return nil
}

// followTrace records the parent of the first span of the fiber.
func (f *fiber) followTrace(sc trace.SpanContext, opt TraceOptions) {
	if f.e.tracer() != nil && (sc.IsValid() || len(opt.Links)+len(opt.Attributes) > 0) {
		f.ext().trace = &traced{from: sc, alive: f.progress.began, opt: opt}
	}
}

// followParent records the span of the fiber that forked this one. The caller holds Engine.mu.
func (f *fiber) followParent(parent *fiber) {
	t := parent.tracing()
	if t == nil {
		return
	}
	own := &traced{from: t.from, alive: t.alive}
	if t.span != nil {
		own.from, own.alive = t.span.SpanContext(), f.progress.began
	}
	f.ext().trace = own
}

func (f *fiber) tracing() *traced {
	if x := f.x.Load(); x != nil {
		return x.trace
	}
	return nil
}

// openTrace makes sure that the fiber has a span, if there is a tracer. It replaces a span that was open for too long
// while the fiber was parked.
func (f *fiber) openTrace(now int64) {
	tracer := f.e.tracer()
	if tracer == nil {
		return
	}
	x := f.ext()
	if x.trace == nil {
		x.trace = &traced{}
	}
	t := x.trace
	if t.span != nil && t.parked > 0 && now-t.parked > int64(tracing.Life) {
		f.e.spanClosed(f)
		t.close(f.e)()
	}
	if t.parked = 0; t.span == nil {
		f.beginSpan(context.Background(), tracer, t, now)
	}
}

func (f *fiber) beginSpan(ctx context.Context, tracer trace.Tracer, t *traced, now int64) {
	ctx, links := tracing.Follow(ctx, t.from, f.e.wall(t.alive), f.e.wall(now))
	_, t.span = tracer.Start(ctx, f.flow.def.name, trace.WithAttributes(
		attribute.String("flow.name", f.flow.def.name), attribute.String("flow.key", f.Key()),
		attribute.Int64("flow.epoch", int64(f.Epoch()))), trace.WithAttributes(t.opt.Attributes...),
		trace.WithLinks(append(links, t.opt.Links...)...))
	t.opt.Links = nil // only for the first span
	t.from = t.span.SpanContext()
	f.e.spanOpened(f)
}

// close detaches the span from a parked fiber. end ends the span as of when the fiber was parked. The caller calls end
// without locks, because it runs user code.
func (t *traced) close(e *Engine) (end func()) {
	span, at := t.span, t.parked
	t.span, t.alive = nil, at
	return func() {
		span.SetAttributes(attribute.String("flow.status", Parked.String()))
		span.End(trace.WithTimestamp(e.wall(at)))
	}
}

// endTrace ends the span of the fiber with its outcome. The status is Parked if another span follows. Only a failure
// marks the span as an error: a cancellation may only mean that the process stops.
func (f *fiber) endTrace(status Status, err error) {
	t := f.tracing()
	if t == nil || t.span == nil {
		return
	}
	t.span.SetAttributes(attribute.String("flow.status", status.String()))
	if status == Failed && err != nil {
		t.span.SetStatus(codes.Error, brief(err.Error()))
	}
	f.e.spanClosed(f)
	t.span.End()
	t.span = nil
}

// traceParent returns the trace as positions store it, for a link after a restart.
func (f *fiber) traceParent() string {
	if t := f.tracing(); t != nil {
		return tracing.Recorded(t.from)
	}
	return ""
}

// linkTrace links the span to that of the previous process, which a position has stored.
func (f *fiber) linkTrace(parent string) {
	if t := f.tracing(); t != nil && t.span != nil {
		if sc := tracing.Parse(parent, ""); sc.IsValid() {
			t.span.AddLink(trace.Link{SpanContext: sc})
		}
	}
}

// runTraced runs a step, with a span if there is a tracer, and with pprof labels if EngineOptions.Labels is set.
func (f *fiber) runTraced(ctx context.Context, st *step) (n Next) {
	if f.e.tracer() != nil {
		ctx = f.beginStep(ctx, st)
		defer func() { f.endStep(n) }()
	}
	if !f.e.opt.Labels {
		return st.run(ctx, f.self)
	}
	pprof.Do(ctx, pprof.Labels("flow", f.flow.def.name, "step", st.path, "key", f.Key()), func(ctx context.Context) {
		n = st.run(ctx, f.self)
	})
	return n
}

// beginStep opens the span of a step, as a child of the span of its fiber.
func (f *fiber) beginStep(ctx context.Context, st *step) context.Context {
	f.openTrace(f.e.now()) // the engine may have inherited its tracer since the fiber was picked up
	t := f.tracing()
	ctx, t.step = f.e.tracer().Start(trace.ContextWithSpan(ctx, t.span), st.path, trace.WithAttributes(
		attribute.String("flow.path", f.path()), attribute.String("flow.key", f.Key()),
		attribute.Int("flow.attempt", f.Attempt())))
	return ctx
}

func (f *fiber) endStep(n Next) {
	t := f.tracing()
	if t.step == nil {
		return
	}
	t.step.SetAttributes(attribute.String("flow.outcome", n.op.String()))
	switch n.op {
	case opFail:
		t.step.SetStatus(codes.Error, brief(n.err.Error()))
	case opNone:
		t.step.SetStatus(codes.Error, "panic")
	}
	t.step.End()
	t.step = nil
}

// FiberSpan returns the span of the fiber of ctx, which is a step context or derived from one. The step can thus
// describe the whole fiber, such as its outcome for the user. The span of the step itself is the one in ctx. Without a
// tracer or a fiber, FiberSpan returns a span that records nothing. Call it only on the goroutine of the step.
func FiberSpan(ctx context.Context) trace.Span {
	if h, ok := FromContext(ctx); ok {
		if t := h.f.tracing(); t != nil && t.span != nil {
			return t.span
		}
	}
	return trace.SpanFromContext(context.Background())
}

// Retrace moves the fiber of ctx, which is a step context or derived from one, to another trace. It is for fibers that
// serve one request after another. The spans of the step and of the fiber end, and new ones begin. The new span of the
// fiber is a child of the span of parent, or a root if parent has none. Retrace returns ctx with the new span of the
// step. Without a tracer or a step it returns ctx unchanged. Call it only on the goroutine of the step.
func Retrace(ctx, parent context.Context, opt TraceOptions) context.Context {
	h, ok := FromContext(ctx)
	if !ok {
		return ctx
	}
	f := h.f
	tracer, t := f.e.tracer(), f.tracing()
	if tracer == nil || t == nil || t.step == nil {
		return ctx
	}
	st, now := f.step(), f.e.now()
	f.endStep(Next{op: opNext})
	f.endTrace(Parked, nil)
	t.from, t.alive, t.opt = trace.SpanContextFromContext(parent), now, opt
	f.beginSpan(context.Background(), tracer, t, now)
	return f.beginStep(ctx, st)
}
