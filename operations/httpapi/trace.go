package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// traced answers in the span of the caller, as W3C Trace Context has it, or where there is a provider in one below it.
// The paths of requests, which have tokens and what callers name, are no part of a span, and event streams have none:
// they may last for days.
func (h *handler) traced(mux *http.ServeMux, next http.Handler) http.Handler {
	tracer := tracing.Tracer(h.TracerProvider, "operation/httpapi")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := tracing.Incoming(r.Context(), r.Header)
		route := ""
		if tracer != nil {
			_, route = mux.Handler(r)
		}
		if tracer == nil || strings.HasSuffix(route, "/events") {
			if ctx != r.Context() {
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
			return
		}
		name := method(r)
		if _, path, ok := strings.Cut(route, " "); ok {
			route, name = path, name+" "+path
		}
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", method(r))))
		defer span.End()
		if route != "" {
			span.SetAttributes(attribute.String("http.route", route))
		}
		status := &statusOf{ResponseWriter: w}
		next.ServeHTTP(status, r.WithContext(ctx))
		code := status.code
		if code == 0 {
			code = http.StatusOK
		}
		span.SetAttributes(attribute.Int("http.response.status_code", code))
		if code >= 500 {
			span.SetAttributes(attribute.String("error.type", strconv.Itoa(code)))
			span.SetStatus(codes.Error, "")
		}
	})
}

// method is that of a request, as OpenTelemetry has it: what a caller may make up is not repeated.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return r.Method
	}
	return "_OTHER"
}

// statusOf remembers the status of an answer. Everything else is that of the writer within.
type statusOf struct {
	http.ResponseWriter
	code int
}

// Unwrap is for http.ResponseController.
func (s *statusOf) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusOf) WriteHeader(code int) {
	if s.code == 0 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}
