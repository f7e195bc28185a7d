package operations_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// TestTheTraceOfAnAPIService: an operation that a handler schedules is in the trace of the caller, or in the service's
// own trace.
func TestTheTraceOfAnAPIService(t *testing.T) {
	const caller = "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01"
	own := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	})
	b := setup(t)
	for _, tt := range []struct {
		id   string
		ctx  context.Context
		want string
	}{
		{"caller", b.ctx, caller},
		{"service", trace.ContextWithSpanContext(b.ctx, own), "00-01000000000000000000000000000000-0200000000000000-01"},
	} {
		res := operations.Resource{Type: "App", ID: tt.id}
		handler := operations.Async(operations.AsyncOptions{Scheduler: b.Scheduler},
			func(ctx context.Context, _ *http.Request, id string) (operations.Request, error) {
				r := operations.Request{ID: id, Type: operations.Delete, Resource: res}
				_, err := b.Schedule(ctx, r)
				return r, err
			})
		req := httptest.NewRequestWithContext(tt.ctx, http.MethodDelete, "/applications/1", nil)
		req.Header.Set("Prefer", "respond-async")
		req.Header.Set("traceparent", caller)
		handler.ServeHTTP(httptest.NewRecorder(), req)
		op, err := b.Get(b.ctx, res)
		if err != nil {
			t.Fatal(err)
		}
		if got := op.Annotations[v1alpha1.AnnotationTraceParent]; got != tt.want {
			t.Errorf("%s: kept is %q, want %q", tt.id, got, tt.want)
		}
	}
}
