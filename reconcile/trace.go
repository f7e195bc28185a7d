package reconcile

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// TracerProvider makes the controller create a span for each reconciliation, as the root of a trace. The requests of
// the reconciler, and the fiber that it starts, are its children. The default is the provider of the host, see
// [Inherited]; without that, there are no spans.
func TracerProvider(tp trace.TracerProvider) Option { return func(s *settings) { s.tracers = tp } }

// traces selects the provider of the options, or else that of the host. The engine of Flow gets the same one.
func (c *Controller) traces() {
	c.from.TracerProvider = cmp.Or(c.set.tracers, c.from.TracerProvider)
	c.tracer = tracing.Tracer(c.from.TracerProvider, "reconcile")
}

// trace starts the span of a reconciliation, if there is a tracer.
func (c *Controller) trace(ctx context.Context, r *reconciliation) context.Context {
	if c.tracer == nil {
		return ctx
	}
	ctx, r.span = c.tracer.Start(ctx, "reconcile "+c.name, trace.WithNewRoot())
	if !r.span.IsRecording() {
		return ctx
	}
	why := []string{}
	for _, reason := range r.why.list {
		if t := string(reason.Type); !slices.Contains(why, t) {
			why = append(why, t)
		}
	}
	r.span.SetAttributes(
		attribute.String("reconcile.controller", c.name),
		attribute.String("reconcile.kind", c.main.kind.GroupKind().String()),
		attribute.String("reconcile.name", r.key.Name), attribute.Int("reconcile.attempt", r.attempt),
		attribute.StringSlice("reconcile.reasons", why),
	)
	if r.key.Namespace != "" {
		r.span.SetAttributes(attribute.String("k8s.namespace.name", r.key.Namespace))
	}
	if c.from.Cluster != "" {
		r.span.SetAttributes(attribute.String("reconcile.cluster", c.from.Cluster))
	}
	return ctx
}

// maxSpanError bounds the error text in a span, in bytes.
const maxSpanError = 1024

// endTrace ends the span of a reconciliation.
func (r *reconciliation) endTrace(outcome string, err error) {
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
