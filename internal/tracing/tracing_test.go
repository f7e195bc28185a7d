package tracing

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

func spanContext(t *testing.T, state string) trace.SpanContext {
	t.Helper()
	ts, err := trace.ParseTraceState(state)
	if err != nil {
		t.Fatal(err)
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: ts,
	})
}

func TestKeptContext(t *testing.T) {
	t.Parallel()
	long := "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("x", 250) + ",c=" + strings.Repeat("x", 250)
	for _, tt := range []struct {
		reason       string
		state, keeps string
	}{
		{reason: "unchanged", state: "vendor=1", keeps: "vendor=1"},
		{reason: "a state that is too long is dropped", state: long},
	} {
		parent, state := Format(spanContext(t, tt.state))
		if state != tt.keeps {
			t.Errorf("%s: state %q", tt.reason, state)
		}
		got := Parse(parent, state)
		if got.TraceID() != (trace.TraceID{1}) || got.SpanID() != (trace.SpanID{2}) || !got.IsSampled() ||
			!got.IsRemote() ||
			got.TraceState().String() != tt.keeps {
			t.Errorf("%s: %+v", tt.reason, got)
		}
	}
	for _, bad := range []string{"", "x", "00-0-0-01", "00-00000000000000000000000000000000-0000000000000000-01"} {
		if got := Parse(bad, "vendor=1"); got.IsValid() {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
	if parent, state := Format(trace.SpanContext{}); parent != "" || state != "" {
		t.Errorf("no context is written as %q, %q", parent, state)
	}
	if Recorded(spanContext(t, "")) == "" || Recorded(spanContext(t, "").WithTraceFlags(0)) != "" {
		t.Error("a context must be recorded only if it is sampled")
	}
}

func TestChildOrLink(t *testing.T) {
	t.Parallel()
	sc, now := spanContext(t, ""), time.Unix(1e9, 0)
	busy := trace.ContextWithSpanContext(t.Context(), spanContext(t, "").WithSpanID(trace.SpanID{9}))
	for _, tt := range []struct {
		reason       string
		sc           trace.SpanContext
		age          time.Duration
		child, links bool
	}{
		{"a moment ago", sc, time.Second, true, false},
		{"a clock that is ahead", sc, -time.Second, true, false},
		{"a minute ago", sc, Life, true, false},
		{"longer ago", sc, Life + 1, false, true},
		{"a clock that is wrong", sc, -time.Hour, false, true},
		{"nothing", trace.SpanContext{}, 0, false, false},
	} {
		ctx, links := Follow(busy, tt.sc, now.Add(-tt.age), now)
		parent := trace.SpanContextFromContext(ctx)
		if (parent.SpanID() == tt.sc.SpanID() && parent.IsValid()) != tt.child || (len(links) == 1) != tt.links ||
			!tt.child && parent.IsValid() {
			t.Errorf("%s: parent %v, links %v", tt.reason, parent, links)
		}
	}
}

func TestNoProviderNoTracer(t *testing.T) {
	t.Parallel()
	if Tracer(nil, "call") != nil || Tracer(noop.NewTracerProvider(), "call") == nil {
		t.Error("a tracer must exist only with a provider")
	}
}

func TestIncoming(t *testing.T) {
	t.Parallel()
	parent, _ := Format(spanContext(t, ""))
	busy := trace.ContextWithSpanContext(t.Context(), spanContext(t, "").WithSpanID(trace.SpanID{9}))
	for _, tt := range []struct {
		reason string
		busy   bool
		header http.Header
		want   trace.SpanID
		state  string
	}{
		{"nothing", false, http.Header{}, trace.SpanID{}, ""},
		{"a caller", false, http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}}, trace.SpanID{2}, "a=1,b=2"},
		{"nonsense", false, http.Header{"Traceparent": {"x"}}, trace.SpanID{}, ""},
		{"two", false, http.Header{"Traceparent": {parent, parent}}, trace.SpanID{}, ""},
		{"the context already has a span", true, http.Header{"Traceparent": {parent}}, trace.SpanID{9}, ""},
	} {
		ctx := t.Context()
		if tt.busy {
			ctx = busy
		}
		got := trace.SpanContextFromContext(Incoming(ctx, tt.header))
		if got.SpanID() != tt.want || got.TraceState().String() != tt.state {
			t.Errorf("%s: %v", tt.reason, got)
		}
	}
}
