package flow

import (
	"context"
	"runtime/pprof"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// linkTrace remembers the span that the fiber was started in.
func (f *fiber) linkTrace(ctx context.Context) { f.linkSpan(trace.SpanContextFromContext(ctx)) }

func (f *fiber) linkSpan(sc trace.SpanContext) {
	if f.e.opt.Tracer != nil && sc.IsValid() {
		f.ext().trace = &tracing{link: sc}
	}
}

func (f *fiber) tracing() *tracing {
	if x := f.x.Load(); x != nil {
		return x.trace
	}
	return nil
}

func (f *fiber) spanContext() trace.SpanContext {
	if t := f.tracing(); t != nil && t.span != nil {
		return t.span.SpanContext()
	}
	return trace.SpanContext{}
}

// startTrace opens the span of the fiber: a child of the one that it was started or forked in.
func (f *fiber) startTrace() {
	if f.e.opt.Tracer == nil {
		return
	}
	x := f.ext()
	if x.trace == nil {
		x.trace = &tracing{}
	}
	if x.trace.span != nil {
		return
	}
	ctx := context.Background()
	if x.trace.link.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, x.trace.link)
	}
	_, x.trace.span = f.e.opt.Tracer.Start(ctx, f.flow.def.name, trace.WithAttributes(
		attribute.String("flow.name", f.flow.def.name), attribute.String("flow.key", f.Key()),
		attribute.Int64("flow.epoch", int64(f.Epoch()))))
}

func (f *fiber) endTrace(status Status, err error) {
	t := f.tracing()
	if t == nil || t.span == nil {
		return
	}
	t.span.SetAttributes(attribute.String("flow.status", status.String()))
	if err != nil {
		t.span.SetStatus(codes.Error, err.Error())
	}
	t.span.End()
}

// traced runs a step with a span, if there is a tracer, and with pprof labels, if they are wanted.
func (f *fiber) traced(ctx context.Context, st *step) (n Next) {
	if tracer := f.e.opt.Tracer; tracer != nil {
		var span trace.Span
		ctx, span = tracer.Start(trace.ContextWithSpanContext(ctx, f.spanContext()), st.path, trace.WithAttributes(
			attribute.String("flow.path", f.path()), attribute.String("flow.key", f.Key()),
			attribute.Int("flow.attempt", f.Attempt())))
		defer func() {
			span.SetAttributes(attribute.String("flow.outcome", n.op.String()))
			if n.op == opFail {
				span.SetStatus(codes.Error, n.err.Error())
			}
			if n.op == opNone {
				span.SetStatus(codes.Error, "panic")
			}
			span.End()
		}()
	}
	if !f.e.opt.Labels {
		return st.run(ctx, f.self)
	}
	pprof.Do(ctx, pprof.Labels("flow", f.flow.def.name, "step", st.path, "key", f.Key()), func(ctx context.Context) {
		n = st.run(ctx, f.self)
	})
	return n
}
