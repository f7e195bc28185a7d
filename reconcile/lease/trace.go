package lease

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// slow is from when on a request is told although it went well.
const slow = time.Second

// trace makes the span of a request that failed, or took long, after the fact.
func (l *lock) trace(ctx context.Context, verb string, begun time.Time, err error) {
	if l.tracer == nil || err == nil && time.Since(begun) < slow || err != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return
	}
	_, span := l.tracer.Start(ctx, verb+" lease", trace.WithNewRoot(), trace.WithTimestamp(begun),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
			attribute.String("lease.name", l.Describe()), attribute.String("lease.identity", l.Identity())))
	if err != nil {
		kind := cmp.Or(string(apierrors.ReasonForError(err)), "transport") // the text of a server is no part of it
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, "")
	}
	span.End()
}
