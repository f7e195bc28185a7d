package source

import (
	"context"
	"testing"
)

// SpanAllocs is how many allocations a span takes of a source that makes none.
func SpanAllocs(ctx context.Context) float64 {
	s := &scope{src: &Source{}}
	return testing.AllocsPerRun(100, func() {
		traced, span := s.trace(ctx, "list")
		s.endTrace(traced, span, nil)
	})
}
