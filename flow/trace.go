package flow

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

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
	t := h.f.tracing()
	if t == nil || t.step == nil {
		return ctx
	}
	return t.move(ctx, h.f, trace.SpanContextFromContext(parent), opt)
}
