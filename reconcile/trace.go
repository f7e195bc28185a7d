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

// TracerProvider has the controller make a span of each reconciliation: the root of a trace, since it is events that
// lead to it. Requests of the reconciler, and the fiber that it starts, are below it. Default: that of the host, see
// [Inherited]; without that, no spans.
func TracerProvider(tp trace.TracerProvider) Option { return func(s *settings) { s.tracers = tp } }

// traces takes the provider of the options, or else that of the host. The engine of Flow has the same one.
func (c *Controller) traces() {
	c.from.TracerProvider = cmp.Or(c.set.tracers, c.from.TracerProvider)
	c.tracer = tracing.Tracer(c.from.TracerProvider, "reconcile")
}

// trace begins the span of a reconciliation, if there is a tracer.
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

// maxSpanError bounds what a span tells of an error, in bytes.
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

// withoutSpan is ctx for what goes on after a reconciliation.
func withoutSpan(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return trace.ContextWithSpan(ctx, nil)
	}
	return ctx
}
