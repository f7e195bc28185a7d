package reconcile

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// TestNoProviderNoCost: without a provider, the span of a reconciliation allocates nothing.
func TestNoProviderNoCost(t *testing.T) {
	c := &tracer{controller: "c", main: &watch{}}
	costs := func() float64 {
		return testing.AllocsPerRun(100, func() {
			r := reconciliation{}
			c.begin(t.Context(), &r)
			r.endSpan("success", nil)
		})
	}
	none := costs()
	if c.spans = tracing.Tracer(spans.Discard(), "reconcile"); costs() == 0 {
		t.Error("a span allocates nothing, so the test measures nothing")
	}
	if none != 0 {
		t.Errorf("%v allocations without a span", none)
	}
}

// BenchmarkUntraced measures the cost of tracing for a reconciliation without a provider.
func BenchmarkUntraced(b *testing.B) { benchmarkTrace(b, &tracer{controller: "c", main: &watch{}}) }

// BenchmarkTraced measures the cost of tracing with a provider.
func BenchmarkTraced(b *testing.B) {
	benchmarkTrace(b, &tracer{controller: "c", main: &watch{}, spans: tracing.Tracer(spans.Discard(), "reconcile")})
}

func benchmarkTrace(b *testing.B, c *tracer) {
	b.ReportAllocs()
	for b.Loop() {
		r := reconciliation{}
		c.begin(b.Context(), &r)
		r.endSpan("success", nil)
	}
}
