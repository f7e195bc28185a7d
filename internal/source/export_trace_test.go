package source

import (
	"context"
	"testing"
)

// SpanAllocs is how many allocations a span takes without a tracer.
func SpanAllocs(ctx context.Context) float64 {
	s := &spans{}
	return testing.AllocsPerRun(100, func() {
		traced, span := s.start(ctx, "list")
		endSpan(traced, span, nil)
	})
}
