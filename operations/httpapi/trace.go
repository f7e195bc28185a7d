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

// traced runs requests in the caller's trace from the W3C Trace Context headers, and in a child span if there is a
// provider. Spans do not contain request paths, which hold tokens and names that callers choose. Event streams have no
// span, since they may last for days.
func traced(provider trace.TracerProvider, mux *http.ServeMux, next http.Handler) http.Handler {
	tracer := tracing.Tracer(provider, "operation/httpapi")
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

// method returns the method as OpenTelemetry specifies it. Unknown methods become _OTHER, because callers choose them.
func method(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodOptions:
		return r.Method
	}
	return "_OTHER"
}

// statusOf records the status of an answer.
type statusOf struct {
	http.ResponseWriter
	code int
}

// Unwrap supports http.ResponseController.
func (s *statusOf) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusOf) WriteHeader(code int) {
	if s.code == 0 {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}
