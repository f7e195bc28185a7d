package outbox

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// trace starts the span of a delivery. The span is the root of a trace, because an entry may wait for hours and the
// table does not store the trace of Enqueue.
func (r *run) trace(ctx context.Context, l lease) (context.Context, trace.Span) {
	ctx, span := r.tracer.Start(ctx, "deliver", trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer))
	span.SetAttributes(attribute.String("outbox.id", l.ID), attribute.String("outbox.key", l.Key),
		attribute.Int("outbox.attempt", l.Attempt))
	return ctx, span
}

// endTrace ends the span of a delivery with its outcome. It omits the text of an error, which may contain data of the
// entry.
func endTrace(span trace.Span, o outcome) {
	name, failed := "retried", true
	switch o.state {
	case stateDelivered:
		name, failed = "delivered", false
	case stateRejected:
		name = "rejected"
	case stateReleased:
		name, failed = "interrupted", false
	}
	span.SetAttributes(attribute.String("outbox.outcome", name))
	if failed {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
