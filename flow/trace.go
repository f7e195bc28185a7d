package flow

import (
	"context"
	"runtime/pprof"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// TraceOptions say what the spans of a fiber follow and tell, beside what they do anyway. Without a tracer they have no
// effect.
type TraceOptions struct {
	// Links are those of the first span of the fiber, beside its parent, which is the span of the context of the start.
	Links []trace.Link
	// Attributes are those of each span of the fiber itself. Its steps do not have them. It is only read.
	Attributes []attribute.KeyValue
}

// traced is what a fiber keeps for its spans. It has one from when it begins until it ends or waits for longer than
// tracing.Life; then the next one is the root of a trace of its own that links to the one before. It belongs to the
// worker that runs the fiber; while the fiber is parked it is guarded by Engine.mu.
type traced struct {
	from   trace.SpanContext // what the next span follows: of who has started or forked it, then its own last one
	alive  int64             // when from was alive last
	opt    TraceOptions
	span   trace.Span // of the fiber; nil while there is none
	step   trace.Span // of the step that runs; nil between steps
	parked int64      // since when the fiber is parked, 0 once it was picked up
}

// tracer returns what makes the spans of the engine; nil: none are made.
func (e *Engine) tracer() trace.Tracer {
	if t := e.traces.Load(); t != nil {
		return *t
	}
	return nil
}

// InheritTracerProvider has an engine that was made without a Tracer make its spans with that of its host. The first
// one counts; nil changes nothing. It is called before fibers are started: those that have been may go without. The
// fairlead runtime calls it for the engines that it looks after, and for those of its controllers.
func (e *Engine) InheritTracerProvider(tp trace.TracerProvider) {
	if t := tracing.Tracer(tp, "flow"); e.made() && t != nil {
		e.traces.CompareAndSwap(nil, &t)
	}
}

// followTrace remembers what the first span of the fiber follows, which is alive now.
func (f *fiber) followTrace(sc trace.SpanContext, opt TraceOptions) {
	if f.e.tracer() != nil && (sc.IsValid() || len(opt.Links)+len(opt.Attributes) > 0) {
		f.ext().trace = &traced{from: sc, alive: f.progress.began, opt: opt}
	}
}

// followParent remembers the span of the fiber that has forked this one. Under Engine.mu.
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

// openTrace has the fiber have a span, if there is a tracer: the one that it has, unless it has waited for too long, or
// one that follows what was alive last.
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
	t.opt.Links = nil // of the first span
	t.from = t.span.SpanContext()
	f.e.spanOpened(f)
}

// close takes the span of a parked fiber away from it; what it returns ends that as of when the fiber was parked, and
// calls what users have written.
func (t *traced) close(e *Engine) (end func()) {
	span, at := t.span, t.parked
	t.span, t.alive = nil, at
	return func() {
		span.SetAttributes(attribute.String("flow.status", Parked.String()))
		span.End(trace.WithTimestamp(e.wall(at)))
	}
}

// endTrace ends the span of the fiber with its outcome; one that is to have another one after it has status Parked. Only
// a failure is an error: a fiber is also cancelled when its process stops.
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

// traceParent is what a position keeps of the trace, to be linked to after a restart.
func (f *fiber) traceParent() string {
	if t := f.tracing(); t != nil {
		return tracing.Recorded(t.from)
	}
	return ""
}

// linkTrace has the span link to that of the process before, of which a position tells.
func (f *fiber) linkTrace(parent string) {
	if t := f.tracing(); t != nil && t.span != nil {
		if sc := tracing.Parse(parent, ""); sc.IsValid() {
			t.span.AddLink(trace.Link{SpanContext: sc})
		}
	}
}

// runTraced runs a step with a span, if there is a tracer, and with pprof labels, if they are wanted.
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

// beginStep opens the span of a step, below that of its fiber.
func (f *fiber) beginStep(ctx context.Context, st *step) context.Context {
	f.openTrace(f.e.now()) // there is none if the engine has got its tracer since
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

// FiberSpan returns the span of the fiber whose step was given ctx, or a context made from it, so that the step can
// describe the whole fiber: its outcome as the user sees it, say. The span of the step itself is that of ctx. It returns
// a span that records nothing where there is no tracer, or ctx is not of a step. It is for the goroutine of the step.
func FiberSpan(ctx context.Context) trace.Span {
	if h, ok := FromContext(ctx); ok {
		if t := h.f.tracing(); t != nil && t.span != nil {
			return t.span
		}
	}
	return trace.SpanFromContext(context.Background())
}

// Retrace has the fiber whose step was given ctx, or a context made from it, go on in another trace, from within the
// step: for fibers that work on one request after another. The spans of the step and of the fiber end; new ones begin,
// the fiber's as a child of the span of parent, or as a root where parent has none. It returns ctx with the new span of
// the step, and ctx itself where there is no tracer, or ctx is not of a step.
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
