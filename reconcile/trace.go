package reconcile

import (
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// TracerProvider makes the controller create a span for each reconciliation, as the root of a trace. The requests of
// the reconciler, and the fiber that it starts, are its children. The default is the provider of the host, see
// [Inherited]; without that, there are no spans.
func TracerProvider(tp trace.TracerProvider) Option { return func(s *settings) { s.tracers = tp } }

// tracer makes the spans of reconciliations. It has no state.
type tracer struct {
	spans      trace.Tracer // nil: no spans
	controller string
	cluster    string // "" if there is only one
	main       *watch
}

// begin starts the span of a reconciliation, if there is a tracer.
func (t *tracer) begin(ctx context.Context, r *reconciliation) context.Context {
	if t.spans == nil {
		return ctx
	}
	ctx, r.span = t.spans.Start(ctx, "reconcile "+t.controller, trace.WithNewRoot())
	if !r.span.IsRecording() {
		return ctx
	}
	why := []string{}
	for _, reason := range r.why.list {
		if text := string(reason.Type); !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	r.span.SetAttributes(
		attribute.String("reconcile.controller", t.controller),
		attribute.String("reconcile.kind", t.main.kind.GroupKind().String()),
		attribute.String("reconcile.name", r.key.Name), attribute.Int("reconcile.attempt", r.attempt),
		attribute.StringSlice("reconcile.reasons", why),
	)
	if r.key.Namespace != "" {
		r.span.SetAttributes(attribute.String("k8s.namespace.name", r.key.Namespace))
	}
	if t.cluster != "" {
		r.span.SetAttributes(attribute.String("reconcile.cluster", t.cluster))
	}
	return ctx
}

// maxSpanError bounds the error text in a span, in bytes.
const maxSpanError = 1024

// endSpan ends the span of a reconciliation.
func (r *reconciliation) endSpan(outcome string, err error) {
	if r.span == nil {
		return
	}
	r.span.SetAttributes(attribute.String("reconcile.outcome", outcome))
	if err != nil {
		text := err.Error()
		r.span.SetStatus(codes.Error, strings.ToValidUTF8(text[:min(len(text), maxSpanError)], ""))
	}
	r.span.End()
}

// withoutSpan returns ctx without its span, for work that outlives the reconciliation.
func withoutSpan(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return trace.ContextWithSpan(ctx, nil)
	}
	return ctx
}
