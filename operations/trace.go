package operations

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// keepTrace has the Operation tell in which span its present request was scheduled, for the spans of its calls to
// follow it, and of no span where there is none: what is there is of the request before.
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
