package source

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// trace starts the span of a list, from its first request to the last object, or of the start of a watch, from the request
// to the head of the answer; without a tracer there is none. It is the root of a trace: what is watched is nobody's
// request. endTrace ends it.
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

// endListTrace ends the span of a list, which was a stream if it was the initial events of a watch.
func (s *scope) endListTrace(ctx context.Context, span trace.Span, consistent bool, st *stream, err error) {
	if span == nil {
		return
	}
	span.SetAttributes(attribute.Bool("source.consistent", consistent), attribute.Bool("source.initial_events", st != nil))
	if err == errUnordered { // all is listed then
		err = nil
	}
	s.endTrace(ctx, span, err)
}

// endTrace ends a span. The text of an error is no part of it: it may hold what is in an object.
func (s *scope) endTrace(ctx context.Context, span trace.Span, err error) {
	if span == nil {
		return
	}
	switch {
	case err == nil:
	case ctx.Err() != nil: // nobody wants it any more
		span.SetAttributes(attribute.String("error.type", "canceled"))
	default:
		span.SetAttributes(attribute.String("error.type", string(reasonFor(err))))
		span.SetStatus(otelcodes.Error, "")
	}
	span.End()
}
