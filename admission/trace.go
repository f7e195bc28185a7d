package admission

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// tracer makes the spans of requests. It has no state.
type tracer struct{ spans trace.Tracer } // nil: no spans

// incoming returns the context of a request. It continues the trace of the API server if the request has one.
func (t tracer) incoming(r *http.Request) context.Context {
	if t.spans == nil {
		return r.Context()
	}
	return tracing.Incoming(r.Context(), r.Header)
}

// begin starts a span for a request if there is a tracer. end ends it with the result: allowed, denied or failed.
func (t tracer) begin(
	ctx context.Context, hook, operation, namespace string,
) (traced context.Context, end func(result string)) {
	if t.spans == nil {
		return ctx, untraced
	}
	ctx, span := t.spans.Start(ctx, "hook "+hook, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("admission.hook", hook), attribute.String("admission.operation", operation)))
	if namespace != "" {
		span.SetAttributes(attribute.String("k8s.namespace.name", namespace))
	}
	return ctx, func(result string) {
		span.SetAttributes(attribute.String("admission.result", result))
		if result == "failed" {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

func untraced(string) {}
