package executor

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// spans makes the spans of operations. They are those of its flow: "operation", and below it one for each step.
// Requests to the API server and webhook calls are below their step. The first span follows the span in the annotations
// of the request. After a restart or a handover, the next one follows the span that the status records. Tracing needs
// no write of its own. spans has no lock and does not change.
type spans struct {
	enabled bool // a TracerProvider is set
	now     func() time.Time
}

// scheduledIn returns the span in which the present request was scheduled, according to annotations that any writer
// may set.
func scheduledIn(op *v1alpha1.Operation) trace.SpanContext {
	return tracing.Parse(op.Annotations[v1alpha1.AnnotationTraceParent], op.Annotations[v1alpha1.AnnotationTraceState])
}

// follow returns the options for the next span of an operation. The context has the parent, if there is one.
func (s spans) follow(ctx context.Context, op *v1alpha1.Operation) (context.Context, flow.TraceOptions) {
	if !s.enabled {
		return ctx, flow.TraceOptions{}
	}
	opt := flow.TraceOptions{Attributes: describeSpan(op)}
	if !op.PickedUp() {
		ctx, opt.Links = tracing.Follow(ctx, scheduledIn(op), op.ScheduledAt(), s.now())
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

// describeSpan returns the attributes of the spans of an operation. They match the fields of log lines and contain no
// template data.
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

// next starts the trace of the next request of an operation. The same flow works on all requests of an object, one
// after another.
func (s spans) next(ctx context.Context, op *v1alpha1.Operation) context.Context {
	if !s.enabled {
		return ctx
	}
	parent, opt := s.follow(context.WithoutCancel(ctx), op)
	return flow.Retrace(ctx, parent, opt)
}

// showOutcome sets the phase of a terminal operation on the span of its flow. For a failed operation it also sets the
// reason and the status. The message is not part of it, since a receiver may have written it.
func (s spans) showOutcome(ctx context.Context, op *v1alpha1.Operation) {
	if !s.enabled || !op.Terminal() {
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

// record records the present span in the status, unless details had to be dropped for lack of room.
func (s spans) record(ctx context.Context, op *v1alpha1.Operation, thin course.Thinness) {
	if !s.enabled {
		return
	}
	if op.Status.TraceParent = ""; thin == course.Whole {
		op.Status.TraceParent = tracing.Recorded(trace.SpanContextFromContext(ctx))
	}
}

// passOn propagates the span in which the request was scheduled to receivers, if this executor makes no spans. It
// skips a span that is too old.
func (s spans) passOn(ctx context.Context, op *v1alpha1.Operation) context.Context {
	if s.enabled || op.Annotations[v1alpha1.AnnotationTraceParent] == "" {
		return ctx
	}
	ctx, _ = tracing.Follow(ctx, scheduledIn(op), op.ScheduledAt(), s.now())
	return ctx
}

// linkCallback links the span of a callback to that of its operation.
func linkCallback(ctx context.Context, op *v1alpha1.Operation) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		if sc := tracing.Parse(op.Status.TraceParent, ""); sc.IsValid() {
			span.AddLink(trace.Link{SpanContext: sc})
		}
	}
}
