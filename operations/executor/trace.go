package executor

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// The spans of an operation are those of its flow: "operation", and below it one for each time that something is looked
// at or done, with the requests to the API server and the calls of Webhooks that come of it. They follow who has
// scheduled the request, as its annotations tell, and after a restart or a handover what the status tells of the span
// before. Nothing of this needs a write of its own.

// scheduledIn is the span in which the present request was scheduled, as somebody claims.
func scheduledIn(op *v1alpha1.Operation) trace.SpanContext {
	return tracing.Parse(op.Annotations[v1alpha1.AnnotationTraceParent], op.Annotations[v1alpha1.AnnotationTraceState])
}

// follow says what the next span of an operation follows: the parent is in the context, if there is one.
func (e *Executor) follow(ctx context.Context, op *v1alpha1.Operation) (context.Context, flow.TraceOptions) {
	if !e.traced {
		return ctx, flow.TraceOptions{}
	}
	opt := flow.TraceOptions{Attributes: describeSpan(op)}
	if !op.PickedUp() {
		ctx, opt.Links = tracing.Follow(ctx, scheduledIn(op), op.ScheduledAt(), e.now())
		return ctx, opt
	}
	last := tracing.Parse(op.Status.TraceParent, "")
	if !last.IsValid() {
		last = scheduledIn(op)
	}
	if last.IsValid() {
		opt.Links = []trace.Link{{SpanContext: last}}
	}
	return trace.ContextWithSpan(ctx, nil), opt
}

// describeSpan is what the spans of an operation tell of it: what lines of the log do, and nothing of what templates
// see.
func describeSpan(op *v1alpha1.Operation) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("k8s.namespace.name", op.Namespace), attribute.String("operation.name", op.Name),
		attribute.String("operation.id", op.EffectiveID()),
		attribute.String("operation.type", string(op.Spec.OperationType)),
		attribute.String("operation.resource.type", op.Spec.ResourceType),
		attribute.String("operation.resource.id", op.Spec.ResourceID),
	}
	for _, each := range []struct{ key, value string }{
		{"operation.category", op.Spec.OperationCategory}, {"operation.correlation_id", op.Spec.CorrelationID},
	} {
		if each.value != "" {
			all = append(all, attribute.String(each.key, each.value))
		}
	}
	return all
}

// another goes on in the trace of the next request, if the run has turned to one, since the same run works on all that
// follow each other for a resource.
func (e *Executor) another(ctx context.Context, r *run) context.Context {
	if !r.another {
		return ctx
	}
	r.another = false
	if !e.traced {
		return ctx
	}
	parent, opt := e.follow(context.WithoutCancel(ctx), r.op)
	return flow.Retrace(ctx, parent, opt)
}

// showOutcome sets the phase of a terminal operation on the span of its flow, and for a failed one the reason and the
// status. The message is not part of it, since a receiver may have written it.
func (e *Executor) showOutcome(ctx context.Context, op *v1alpha1.Operation) {
	if !e.traced || !op.Terminal() {
		return
	}
	span := flow.FiberSpan(ctx)
	span.SetAttributes(attribute.String("operation.phase", string(op.Status.Phase)))
	if op.Status.Phase != v1alpha1.PhaseFailed {
		return
	}
	reason := ""
	if c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionError); c != nil {
		reason = c.Reason
	}
	span.SetAttributes(attribute.String("operation.reason", reason), attribute.String("error.type", reason))
	span.SetStatus(codes.Error, reason)
}

// keepTrace has the status tell of the span in which it is written, unless there is hardly room for it.
func (e *Executor) keepTrace(ctx context.Context, r *run) {
	if !e.traced {
		return
	}
	if r.op.Status.TraceParent = ""; r.thin == course.Whole {
		r.op.Status.TraceParent = tracing.Recorded(trace.SpanContextFromContext(ctx))
	}
}

// passOn has receivers know of who has scheduled the request, where this executor makes no spans: they are told of that
// span itself, unless it is too long ago.
func (e *Executor) passOn(ctx context.Context, op *v1alpha1.Operation) context.Context {
	if e.traced || op.Annotations[v1alpha1.AnnotationTraceParent] == "" {
		return ctx
	}
	ctx, _ = tracing.Follow(ctx, scheduledIn(op), op.ScheduledAt(), e.now())
	return ctx
}

// linkCallback has the span in which a callback is taken link to that of the operation.
func linkCallback(ctx context.Context, op *v1alpha1.Operation) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		if sc := tracing.Parse(op.Status.TraceParent, ""); sc.IsValid() {
			span.AddLink(trace.Link{SpanContext: sc})
		}
	}
}
