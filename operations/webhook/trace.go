package webhook

import (
	"context"
	"errors"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// startSpan starts the span of a try, if there is a tracer. kind is "call" or "poll". The
// receiver gets the trace of the returned context.
func (s *sender) startSpan(
	ctx context.Context, def *Definition, kind string, call Call,
) (context.Context, trace.Span) {
	if s.tracer == nil {
		return ctx, nil
	}
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
	if call.After.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: call.After}))
	}
	ctx, span := s.tracer.Start(ctx, kind+" "+def.Name, opts...)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("webhook.name", def.Name), attribute.String("webhook.call.id", call.ID))
		if def.Namespace != "" {
			span.SetAttributes(attribute.String("k8s.namespace.name", def.Namespace))
		}
	}
	return ctx, span
}

// endSpan ends the span of a try with its result and returns the context of the span. The span does not contain the
// request, the answer or the text of an error.
func (t *try) endSpan(span trace.Span, res Result) trace.SpanContext {
	if span == nil {
		return trace.SpanContext{}
	}
	defer span.End()
	if !span.IsRecording() {
		return span.SpanContext()
	}
	span.SetAttributes(attribute.String("webhook.verdict", res.Verdict.String()))
	if r := t.request; r != nil {
		span.SetAttributes(attribute.String("http.request.method", r.method), attribute.String("url.full", t.shown(r.url)),
			attribute.String("server.address", r.url.Hostname()))
		if port, err := strconv.Atoi(r.url.Port()); err == nil {
			span.SetAttributes(attribute.Int("server.port", port))
		}
	}
	status := 0
	if t.answer != nil {
		status = t.answer.status
	}
	if status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if kind := errorType(res, status); kind != "" {
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, "")
	}
	return span.SpanContext()
}

// shown returns a URL without possible secrets: without its query, and with masked credentials and signing keys in the
// rest.
func (t *try) shown(u *url.URL) string {
	shown := *u
	shown.User, shown.RawQuery, shown.Fragment, shown.RawFragment = nil, "", "", ""
	text := t.mask.apply(shown.String())
	if u.RawQuery != "" {
		text += "?" + masked
	}
	return text
}

// errorType returns a short reason for an unsuccessful try, or "" for a success or a pending one.
func errorType(res Result, status int) string {
	switch {
	case res.Verdict == Succeeded, res.Verdict == Accepted, res.Verdict == Pending && res.Err == nil:
		return ""
	case errors.Is(res.Err, ErrFenced):
		return "fenced"
	case res.Verdict == Canceled:
		return "cancelled"
	case res.Verdict == Refused:
		return "target_refused"
	case errors.Is(res.Err, errCredentials):
		return "no_credentials"
	case status >= 400:
		return strconv.Itoa(status)
	case errors.Is(res.Err, errNoAnswer):
		return "no_answer"
	case res.Verdict == Invalid:
		return "invalid"
	}
	return "failed" // by its rule
}
