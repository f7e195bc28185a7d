package reconcile

import (
	"testing"

	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// TestNoProviderNoCost: what a span takes of a reconciliation is nothing without a provider.
func TestNoProviderNoCost(t *testing.T) {
	c := &Controller{name: "c", main: &watch{}}
	costs := func() float64 {
		return testing.AllocsPerRun(100, func() {
			r := reconciliation{}
			c.trace(t.Context(), &r)
			r.endTrace("success", nil)
		})
	}
	none := costs()
	if c.tracer = tracing.Tracer(spans.Discard(), "reconcile"); costs() == 0 {
		t.Error("a span costs nothing, so this measures nothing")
	}
	if none != 0 {
		t.Errorf("%v allocations for no span", none)
	}
}

// BenchmarkUntraced is what tracing adds to a reconciliation without a provider, BenchmarkTraced with one.
func BenchmarkUntraced(b *testing.B) { benchmarkTrace(b, &Controller{name: "c", main: &watch{}}) }

// BenchmarkTraced is the same with a provider.
func BenchmarkTraced(b *testing.B) {
	benchmarkTrace(b, &Controller{name: "c", main: &watch{}, tracer: tracing.Tracer(spans.Discard(), "reconcile")})
}

func benchmarkTrace(b *testing.B, c *Controller) {
	b.ReportAllocs()
	for b.Loop() {
		r := reconciliation{}
		c.trace(b.Context(), &r)
		r.endTrace("success", nil)
	}
}
