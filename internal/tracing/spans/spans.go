// Package spans records spans for our own tests.
package spans

import (
	"context"
	"slices"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Span is an ended span.
type Span = sdktrace.ReadOnlySpan

// Recorder is a tracer provider that records ended spans. It is safe for concurrent use.
type Recorder struct {
	*sdktrace.TracerProvider
	mu    sync.Mutex
	ended []Span
	wake  []chan struct{} // closed when a span ends; made by the waiters, which may be in a bubble
}

// New returns a recorder that samples all spans, unless opts say otherwise.
func New(opts ...sdktrace.TracerProviderOption) *Recorder {
	r := &Recorder{}
	r.TracerProvider = sdktrace.NewTracerProvider(append(opts, sdktrace.WithSpanProcessor(processor{r}))...)
	return r
}

// Start starts a span of the test.
func (r *Recorder) Start(ctx context.Context, name string) (context.Context, trace.Span) {
	return r.Tracer("test").Start(ctx, name)
}

// Ended returns the ended spans in the order in which they ended.
func (r *Recorder) Ended() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.ended)
}

// Named returns the ended spans with a name.
func (r *Recorder) Named(name string) []Span {
	return slices.DeleteFunc(r.Ended(), func(s Span) bool { return s.Name() != name })
}

// Await waits for n ended spans with a name and returns them. The test fails if its context ends before.
func (r *Recorder) Await(t testing.TB, name string, n int) []Span {
	t.Helper()
	for {
		more := make(chan struct{})
		r.mu.Lock()
		r.wake = append(r.wake, more)
		r.mu.Unlock()
		if found := r.Named(name); len(found) >= n {
			return found
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("there are %d spans %q, want %d, of %v", len(r.Named(name)), name, n, r.Names())
		}
	}
}

// Names returns the names of the ended spans.
func (r *Recorder) Names() (names []string) {
	for _, s := range r.Ended() {
		names = append(names, s.Name())
	}
	return names
}

// IsChild reports whether s is a child of another span and has no links.
func IsChild(s, of Span) bool {
	return s.Parent().SpanID() == of.SpanContext().SpanID() && s.SpanContext().TraceID() == of.SpanContext().TraceID() &&
		len(s.Links()) == 0
}

// Links reports whether s is a root span whose only link is to another span.
func Links(s, to Span) bool {
	return !s.Parent().IsValid() && s.SpanContext().TraceID() != to.SpanContext().TraceID() &&
		len(s.Links()) == 1 && Same(s.Links()[0].SpanContext, to)
}

// Same reports whether sc is the context of s.
func Same(sc trace.SpanContext, s Span) bool {
	return sc.SpanID() == s.SpanContext().SpanID() && sc.TraceID() == s.SpanContext().TraceID()
}

// Value returns an attribute of a span as text, or "" if the span does not have it.
func Value(s Span, key string) string {
	for _, a := range s.Attributes() {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

type processor struct{ r *Recorder }

func (processor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (processor) Shutdown(context.Context) error                  { return nil }
func (processor) ForceFlush(context.Context) error                { return nil }
func (p processor) OnEnd(s Span) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.r.ended = append(p.r.ended, s)
	for _, wake := range p.r.wake {
		close(wake)
	}
	p.r.wake = nil
}

// Discard returns a provider that creates spans and discards them. Benchmarks use it to measure the cost of tracing.
func Discard() trace.TracerProvider { return sdktrace.NewTracerProvider() }

// Never is an option for New that samples no spans.
func Never() sdktrace.TracerProviderOption { return sdktrace.WithSampler(sdktrace.NeverSample()) }

// Allocs returns the number of allocations of a call of fn. It is the minimum of several rounds, because with the
// race detector sync.Pool drops values at random.
func Allocs(fn func()) float64 {
	fewest := testing.AllocsPerRun(100, fn)
	for range 9 {
		fewest = min(fewest, testing.AllocsPerRun(100, fn))
	}
	return fewest
}
