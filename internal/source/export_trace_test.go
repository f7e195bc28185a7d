package source

import (
	"context"
	"testing"
)

// SpanAllocs returns the allocations of a span without a tracer.
func SpanAllocs(ctx context.Context) float64 {
	s := &spans{}
	return testing.AllocsPerRun(100, func() {
		traced, span := s.start(ctx, "list")
		endSpan(traced, span, nil)
	})
}
