package admission_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/internal/testbed/hookbed"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/internal/tracing/spans"
)

// TestSpans: each call of a hook has a span below that of the API server, and the hook runs in it.
func TestSpans(t *testing.T) {
	t.Parallel()
	made := spans.New()
	const asked = "0102030405060708090a0b0c0d0e0f10" // the trace of the test's requests, since the API server calls, too
	inside := make(chan trace.SpanContext, 1)
	s := serve(t, model(t), func(h *admission.Hooks) {
		admission.Validate(h, admission.Rule{OnFailure: admission.FailOpen},
			func(ctx context.Context, r *hookbed.Maps) error {
				span := trace.SpanContextFromContext(ctx)
				if span.TraceID().String() != asked {
					return nil
				}
				inside <- span
				switch r.Object.Name {
				case "denied":
					return errors.New("secret")
				case "failed":
					panic("secret")
				}
				return nil
			})
	}, fairlead.WithTracerProvider(made))
	type attributes struct{ Operation, Namespace, Result, Status, Parent string }
	for name, want := range map[string]attributes{
		"allowed": {"create", "prod", "allowed", "Unset", "0102030405060708"},
		"denied":  {"create", "prod", "denied", "Unset", "0102030405060708"},
		"failed":  {"create", "prod", "failed", "Error", "0102030405060708"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			s.url+validatePath,
			strings.NewReader(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",`+
				`"request":{"uid":"1","namespace":"prod","operation":"CREATE","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"`+name+`"}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Traceparent", "00-"+asked+"-0102030405060708-01")
		answer, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		found, within := false, trace.SpanContext{}
		select {
		case within = <-inside:
		case <-time.After(testlimit.Wait):
			t.Fatalf("%s: the hook was not called in the trace", name)
		}
		for _, s := range made.Named("hook validate.configmap.v1.core") {
			if s.SpanContext().TraceID().String() != asked || spans.Value(s, "admission.result") != name {
				continue
			}
			found = true
			got := attributes{
				spans.Value(s, "admission.operation"), spans.Value(s, "k8s.namespace.name"), spans.Value(s, "admission.result"),
				s.Status().Code.String(), s.Parent().SpanID().String(),
			}
			if diff := cmp.Diff(want, got); diff != "" || s.Status().Description != "" || !spans.Same(within, s) {
				t.Errorf("%s: %q, -want +got:\n%s", name, s.Status().Description, diff)
			}
		}
		if !found {
			t.Errorf("%s: it has no span: %v", name, made.Names())
		}
	}
}

// TestNoSpans: without a provider, spans allocate nothing.
func TestNoSpans(t *testing.T) {
	if n := admission.SpanAllocs(t.Context()); n != 0 {
		t.Errorf("without a span: %v allocations", n)
	}
}
