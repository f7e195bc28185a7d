// Package tracing defines the conventions of all layers that create spans. These are the names of tracers, the form of
// a span context in an object, and the choice between a child span and a link.
package tracing

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Life is how long after its last activity a span may get children. A later span is the root of a new trace that links
// to it. A trace should show activity and not idle time, and many collectors have finished the trace by then.
const Life = time.Minute

// Scope is the prefix of all tracer names.
const Scope = "github.com/fairlead-io/fairlead/"

// Tracer returns the tracer of a layer, such as "call". It returns nil without a provider, so disabled tracing costs
// only a comparison.
func Tracer(tp trace.TracerProvider, layer string) trace.Tracer {
	if tp == nil {
		return nil
	}
	return tp.Tracer(Scope + layer)
}

// Follow prepares ctx for a span that follows sc, which was last active at alive. The new span is a child if alive is
// within Life of now, else a root that links to sc. If sc is not valid, the new span is a root without a link. Follow
// removes any other span from ctx.
func Follow(ctx context.Context, sc trace.SpanContext, alive, now time.Time) (context.Context, []trace.Link) {
	ctx = trace.ContextWithSpan(ctx, nil)
	age := now.Sub(alive)
	switch {
	case !sc.IsValid():
		return ctx, nil
	case age <= Life && age >= -Life: // clocks of two machines differ
		return trace.ContextWithSpanContext(ctx, sc), nil
	}
	return ctx, []trace.Link{{SpanContext: sc}}
}

// Header names of W3C Trace Context.
const (
	Parent = "traceparent"
	State  = "tracestate"
)

// maxState bounds a stored tracestate in bytes. W3C Trace Context requires every participant to propagate that much.
const maxState = 512

// Format returns a span context in the form of W3C Trace Context, or empty strings if it is not valid. It omits a state
// longer than maxState, as the recommendation allows.
func Format(sc trace.SpanContext) (parent, state string) {
	if !sc.IsValid() {
		return "", ""
	}
	h := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), h)
	if state = h[State]; len(state) > maxState {
		state = ""
	}
	return h[Parent], state
}

// Parse is the inverse of Format. It returns an invalid context for malformed input.
func Parse(parent, state string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	if len(state) > maxState {
		state = ""
	}
	h := propagation.MapCarrier{Parent: parent, State: state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), h))
}

// Recorded returns the parent of a sampled span for a later link, or "" if the span is not sampled.
func Recorded(sc trace.SpanContext) string {
	if !sc.IsSampled() {
		return ""
	}
	parent, _ := Format(sc)
	return parent
}

// Incoming returns ctx with the span context from the headers of a request. It returns ctx unchanged if ctx already has
// a span context.
func Incoming(ctx context.Context, h http.Header) context.Context {
	parents := h["Traceparent"] // the canonical form; http.Header.Get would allocate
	if len(parents) != 1 || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	if sc := Parse(parents[0], strings.Join(h.Values(State), ",")); sc.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}
