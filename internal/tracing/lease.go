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

// slowLease is from when on a request about a Lease is told although it went well.
const slowLease = time.Second

// LeaseRequest makes the span of a request about a Lease that failed, or took a second or longer, after the fact. Name
// is that of the Lease with its namespace, identity who has asked. Nothing is made by a nil tracer.
func LeaseRequest(ctx context.Context, t trace.Tracer, verb, name, identity string, begun time.Time, err error) {
	if t == nil || err == nil && time.Since(begun) < slowLease {
		return
	}
	_, span := t.Start(ctx, verb+" lease", trace.WithNewRoot(), trace.WithTimestamp(begun),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("lease.name", name), attribute.String("lease.identity", identity)))
	if err != nil {
		kind := cmp.Or(string(apierrors.ReasonForError(err)), "transport") // the text of a server is no part of it
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
