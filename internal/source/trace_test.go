package source_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// TestSpans: each list has a span with its pages. Each start of a watch has a span that ends long before the watch.
func TestSpans(t *testing.T) {
	t.Parallel()
	made := spans.New()
	r := newRecorder(t)
	s := serve(t, []reply{status(403, "Forbidden", "user x cannot list"), list(5, object("a", 1))}, []reply{
		status(500, "InternalError", "secret of the object"), watch(bookmark(9)),
	})
	s.run(r, func(c *source.Config) { c.TracerProvider = made })
	r.wait("version 9", func() bool { return r.version == "9" && r.status().Phase == source.Watching })
	type told struct{ Resource, Error, Status string }
	for name, want := range map[string][]told{
		"list configmaps":  {{"configmaps", "Forbidden", "Error"}, {"configmaps", "", "Unset"}},
		"watch configmaps": {{"configmaps", "ServerError", "Error"}, {"configmaps", "", "Unset"}},
	} {
		var got []told
		for _, one := range made.Await(t, name, len(want)) {
			got = append(got, told{
				spans.Value(one, "source.resource"), spans.Value(one, "error.type"),
				one.Status().Code.String(),
			})
			if one.Parent().IsValid() || one.SpanKind() != trace.SpanKindClient || one.Status().Description != "" {
				t.Errorf("%s: parent %v, kind %s, %q", name, one.Parent(), one.SpanKind(), one.Status().Description)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
}

// TestNoSpans: without a provider spans allocate nothing.
func TestNoSpans(t *testing.T) {
	if n := source.SpanAllocs(t.Context()); n != 0 {
		t.Errorf("no span takes %v allocations", n)
	}
}
