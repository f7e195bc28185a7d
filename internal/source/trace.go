package source

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// spans makes the spans of the lists and watches of one scope. It is safe for concurrent use.
type spans struct {
	tracer    trace.Tracer // nil: no spans
	resource  schema.GroupResource
	namespace string
}

// start starts the span of a list or of the start of a watch. The span of a list ends with its last object, that of a
// watch with the response header. Without a tracer it returns a nil span. The span is a root, because no user request
// causes it. endSpan ends it.
func (s *spans) start(ctx context.Context, verb string) (traced context.Context, span trace.Span) {
	if s.tracer == nil {
		return ctx, nil
	}
	ctx, span = s.tracer.Start(ctx, verb+" "+s.resource.Resource, trace.WithNewRoot(),
		trace.WithSpanKind(trace.SpanKindClient))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(attribute.String("source.resource", s.resource.String()))
	if s.namespace != "" {
		span.SetAttributes(attribute.String("k8s.namespace.name", s.namespace))
	}
	return ctx, span
}

// endListSpan ends the span of a list.
func endListSpan(ctx context.Context, span trace.Span, consistent, initialEvents bool, err error) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.Bool("source.consistent", consistent),
		attribute.Bool("source.initial_events", initialEvents))
	if err == errUnordered { // the scope then lists everything
		err = nil
	}
	endSpan(ctx, span, err)
}

// endSpan ends a span, which may be nil. It omits the text of an error, which may quote an object.
func endSpan(ctx context.Context, span trace.Span, err error) {
	if span == nil {
		return
	}
	switch {
	case err == nil:
	case ctx.Err() != nil: // cancelled
		span.SetAttributes(attribute.String("error.type", "canceled"))
	default:
		span.SetAttributes(attribute.String("error.type", string(reasonFor(err))))
		span.SetStatus(otelcodes.Error, "")
	}
	span.End()
}
