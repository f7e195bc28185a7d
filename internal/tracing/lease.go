package tracing

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// slowLease is the duration from which a successful request for a Lease gets a span.
const slowLease = time.Second

// LeaseRequest records a span, after the fact, for a request for a Lease that failed or took at least slowLease. name
// is the namespace and name of the Lease, and identity its candidate. With a nil tracer it does nothing.
func LeaseRequest(ctx context.Context, t trace.Tracer, verb, name, identity string, begun time.Time, err error) {
	if t == nil || err == nil && time.Since(begun) < slowLease {
		return
	}
	_, span := t.Start(ctx, verb+" lease", trace.WithNewRoot(), trace.WithTimestamp(begun),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("lease.name", name), attribute.String("lease.identity", identity)))
	if err != nil {
		kind := cmp.Or(string(apierrors.ReasonForError(err)), "transport") // omits the server's message
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
