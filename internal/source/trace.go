package source

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// trace starts the span of a list or of the start of a watch. The span of a list ends with its last object, that of a
// watch with the response header. Without a tracer it returns a nil span. The span is a root, because no user request
// causes it. endTrace ends it.
func (s *scope) trace(ctx context.Context, verb string) (traced context.Context, span trace.Span) {
	if s.src.tracer == nil {
		return ctx, nil
	}
	gr := s.src.cfg.Resource.GroupResource()
	ctx, span = s.src.tracer.Start(ctx, verb+" "+gr.Resource, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(attribute.String("source.resource", gr.String()))
	if s.namespace != "" {
		span.SetAttributes(attribute.String("k8s.namespace.name", s.namespace))
	}
	return ctx, span
}

// endListTrace ends the span of a list. st is not nil if the list used the initial events of a watch.
func (s *scope) endListTrace(ctx context.Context, span trace.Span, consistent bool, st *stream, err error) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.Bool("source.consistent", consistent), attribute.Bool("source.initial_events", st != nil))
	if err == errUnordered { // the scope then lists everything
		err = nil
	}
	s.endTrace(ctx, span, err)
}

// endTrace ends a span. It omits the text of an error, which may quote an object.
func (s *scope) endTrace(ctx context.Context, span trace.Span, err error) {
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
