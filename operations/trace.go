package operations

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// keepTrace records the span in which the present request was scheduled, as parent of the spans of its calls. Without a
// span it removes the annotations, which belong to the previous request.
func keepTrace(ctx context.Context, op *v1alpha1.Operation) {
	parent, state := tracing.Format(trace.SpanContextFromContext(ctx))
	for name, value := range map[string]string{
		v1alpha1.AnnotationTraceParent: parent, v1alpha1.AnnotationTraceState: state,
	} {
		if value == "" {
			delete(op.Annotations, name)
		} else {
			op.Annotations[name] = value
		}
	}
}
