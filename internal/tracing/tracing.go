// Package tracing has what all layers that make spans agree on: the names of their tracers, how the context of a span
// is kept in an object, and when a span is a child of another one and when it only links to it.
package tracing

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Life is for how long after it was alive last a span may get children. What comes later is a trace of its own that
// links to it: who looks at a trace should see what went on, not how long nothing did, and many collectors have put
// away by then what would be added to.
const Life = time.Minute

// Scope is how the names of all tracers begin.
const Scope = "github.com/fairlead-io/fairlead/"

// Tracer returns the tracer of a layer, such as "call"; nil without a provider, so that one comparison is all that
// costs.
func Tracer(tp trace.TracerProvider, layer string) trace.Tracer {
	if tp == nil {
		return nil
	}
	return tp.Tracer(Scope + layer)
}

// Follow makes the next span follow what was alive last at a time: as a child if that is no longer ago than Life, else
// as a root that links to it. ctx keeps no other span. A context that is not valid is followed by a root.
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

// Names of the two values of W3C Trace Context.
const (
	Parent = "traceparent"
	State  = "tracestate"
)

// maxState bounds what is kept of a tracestate, in bytes: what W3C Trace Context asks everybody to pass on.
const maxState = 512

// Format returns the context of a span in the form of W3C Trace Context; both are empty if it is not valid. A state
// that is too long to be kept is left out, as the recommendation allows.
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

// Parse is the reverse of Format. What it cannot read is no valid context.
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

// Recorded is Format for what is kept to be linked to: the parent of a span that is recorded, else empty.
func Recorded(sc trace.SpanContext) string {
	if !sc.IsSampled() {
		return ""
	}
	parent, _ := Format(sc)
	return parent
}

// Incoming returns ctx in the span of the caller of a request, as its headers tell, unless somebody has taken that from
// them already.
func Incoming(ctx context.Context, h http.Header) context.Context {
	parents := h["Traceparent"] // as a server spells it: to have that done here costs an allocation
	if len(parents) != 1 || trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	if sc := Parse(parents[0], strings.Join(h.Values(State), ",")); sc.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	return ctx
}
