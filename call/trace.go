package call

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// spans creates the spans of tries. It does not change.
type spans struct {
	tracer trace.Tracer // nil: no spans
	server *url.URL
}

// start starts the span of a try, if there is a tracer. Its attributes contain names only, and no body, query or
// header.
func (s *spans) start(ctx context.Context, r *Request, id string, tries int) (context.Context, trace.Span) {
	if s.tracer == nil {
		return ctx, nil
	}
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	ctx, span := s.tracer.Start(ctx, string(r.Verb)+" "+resource, trace.WithSpanKind(trace.SpanKindClient))
	if !span.IsRecording() {
		return ctx, span
	}
	span.SetAttributes(
		attribute.String("http.request.method", r.Verb.method()), attribute.String("call.id", id),
		attribute.String("call.verb", string(r.Verb)),
		attribute.String("call.resource", r.Resource.GroupResource().String()),
	)
	span.SetAttributes(addressOf(s.server)...)
	for _, each := range []struct{ key, value string }{
		{"k8s.namespace.name", r.Namespace}, {"call.name", r.Name}, {"call.subresource", r.Subresource},
	} {
		if each.value != "" {
			span.SetAttributes(attribute.String(each.key, each.value))
		}
	}
	if tries > 0 {
		span.SetAttributes(attribute.Int("http.request.resend_count", tries))
	}
	return ctx, span
}

// addressOf returns the address of a URL as OpenTelemetry attributes.
func addressOf(u *url.URL) []attribute.KeyValue {
	at := []attribute.KeyValue{attribute.String("server.address", u.Hostname())}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		at = append(at, attribute.Int("server.port", port))
	}
	return at
}

// endSpan ends the span of a try with its result. It omits the text of errors, because a server's message may contain
// content of the object. ctx is the caller's context.
func endSpan(ctx context.Context, span trace.Span, r *Request, a answer) {
	if span == nil {
		return
	}
	defer span.End()
	kind := ""
	switch {
	case a.err != nil && ctx.Err() != nil:
		kind = cancelled
	case a.err != nil:
		kind = transportReason(a.err)
	case a.code >= 400 && !(a.code == http.StatusNotFound && r.NotFoundOK):
		kind = strconv.Itoa(a.code)
	}
	if a.code != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", a.code))
	}
	if kind != "" {
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, "")
	}
}

// inject adds the span to the request header, so that a tracing server can add its spans as children.
func (s *spans) inject(ctx context.Context, h http.Header) {
	if s.tracer != nil {
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
	}
}
