package flow

import (
	"context"
	"runtime/pprof"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairlead-io/fairlead/internal/tracing"
)

// TraceOptions adds links and attributes to the spans of a fiber. It has no effect without a tracer.
type TraceOptions struct {
	// Links are additional links of the first span of the fiber. Its parent is the span of the context of Start.
	Links []trace.Link
	// Attributes are additional attributes of each span of the fiber, but not of its steps. The engine does not modify
	// the slice.
	Attributes []attribute.KeyValue
}

// fiberSpans makes the spans of the fibers of an engine and of their steps. Without a tracer it does nothing.
//
// A span is exported only when it ends, and a crash loses open spans. A parked fiber therefore must not keep its span
// open for long. One alarm checks all open spans periodically. A fiber that resumes earlier checks its own span.
type fiberSpans struct {
	mu     *sync.Mutex // core.mu; guards the fields below, and the traced of parked fibers
	time   *timeline
	wg     *sync.WaitGroup // counts the alarm
	tracer atomic.Pointer[trace.Tracer]
	labels bool // set pprof labels

	open    map[*fiber]struct{} // fibers with an open span
	unset   func() bool         // nil if no alarm is set
	stopped bool
}

// traced is the tracing state of a fiber. The fiber has a span from when it begins until it ends, or until it has been
// parked for longer than tracing.Life. The next span is then the root of a new trace, with a link to the previous span.
// traced belongs to the worker that runs the fiber. While the fiber is parked, core.mu guards it.
type traced struct {
	spans *fiberSpans
	// from is the parent or link of the next span: the span of the starter or the parent fiber, later the last own
	// span.
	from   trace.SpanContext
	alive  int64 // when from was last open
	opt    TraceOptions
	span   trace.Span // of the fiber; nil if none is open
	step   trace.Span // of the running step; nil between steps
	parked int64      // when the fiber was parked; 0 after it was picked up
}

// start connects the part to its owner.
func (s *fiberSpans) start(c *core, wg *sync.WaitGroup, labels bool) {
	s.mu, s.time, s.wg, s.labels = &c.mu, &c.time, wg, labels
}

// use sets the tracer, unless there is one.
func (s *fiberSpans) use(t trace.Tracer) { s.tracer.CompareAndSwap(nil, &t) }

// follow records the parent of the first span of f, which is about to start.
func (s *fiberSpans) follow(f *fiber, sc trace.SpanContext, opt TraceOptions) {
	if s.tracer.Load() != nil && (sc.IsValid() || len(opt.Links)+len(opt.Attributes) > 0) {
		f.ext().trace = &traced{spans: s, from: sc, alive: f.progress.began, opt: opt}
	}
}

// followParent records the span of the fiber that forked f. The caller holds mu.
func (s *fiberSpans) followParent(f, parent *fiber) {
	t := parent.tracing()
	if t == nil {
		return
	}
	own := &traced{spans: s, from: t.from, alive: t.alive}
	if t.span != nil {
		own.from, own.alive = t.span.SpanContext(), f.progress.began
	}
	f.ext().trace = own
}

// resume makes sure that f, which has been picked up, has a span. It replaces a span that was open for too long while f
// was parked.
func (s *fiberSpans) resume(f *fiber, now int64) {
	tracer := s.tracer.Load()
	if tracer == nil {
		return
	}
	x := f.ext()
	if x.trace == nil {
		x.trace = &traced{spans: s}
	}
	t := x.trace
	if t.span != nil && t.parked > 0 && now-t.parked > int64(tracing.Life) {
		s.forget(f)
		t.close()()
	}
	if t.parked = 0; t.span == nil {
		s.begin(*tracer, f, t, now)
	}
}

// park records that f is being parked. The caller holds mu.
func (s *fiberSpans) park(f *fiber) {
	if t := f.tracing(); t != nil {
		t.parked = s.time.now()
	}
}

// begin opens the span of f.
func (s *fiberSpans) begin(tracer trace.Tracer, f *fiber, t *traced, now int64) {
	ctx, links := tracing.Follow(context.Background(), t.from, s.time.wall(t.alive), s.time.wall(now))
	root := f.root()
	_, t.span = tracer.Start(ctx, f.flow.def.name, trace.WithAttributes(
		attribute.String("flow.name", f.flow.def.name), attribute.String("flow.key", root.key),
		attribute.Int64("flow.epoch", int64(root.epoch))), trace.WithAttributes(t.opt.Attributes...),
		trace.WithLinks(append(links, t.opt.Links...)...))
	t.opt.Links = nil // only for the first span
	t.from = t.span.SpanContext()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*fiber]struct{})
	}
	s.open[f] = struct{}{}
	s.watch()
}

// end ends the span of f with its outcome. The status is Parked if another span follows. Only a failure marks the span
// as an error: a cancellation may only mean that the process stops.
func (s *fiberSpans) end(f *fiber, status Status, err error) {
	t := f.tracing()
	if t == nil || t.span == nil {
		return
	}
	t.span.SetAttributes(attribute.String("flow.status", status.String()))
	if status == Failed && err != nil {
		t.span.SetStatus(codes.Error, brief(err.Error()))
	}
	s.forget(f)
	t.span.End()
	t.span = nil
}

// forget removes f, whose span ends, from the open spans.
func (s *fiberSpans) forget(f *fiber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, f)
}

// off reports whether steps need neither a span nor labels.
func (s *fiberSpans) off() bool { return s.tracer.Load() == nil && !s.labels }

// runStep runs a step, with a span if there is a tracer, and with pprof labels if EngineOptions.Labels is set.
func (s *fiberSpans) runStep(ctx context.Context, f *fiber, st *step) (n Next) {
	if tracer := s.tracer.Load(); tracer != nil {
		s.resume(f, s.time.now()) // the engine may have inherited its tracer since the fiber was picked up
		ctx = f.tracing().beginStep(ctx, *tracer, f)
		defer func() { f.tracing().endStep(n) }()
	}
	if !s.labels {
		return st.run(ctx, f.self)
	}
	labels := pprof.Labels("flow", f.flow.def.name, "step", st.path, "key", f.root().key)
	pprof.Do(ctx, labels, func(ctx context.Context) { n = st.run(ctx, f.self) })
	return n
}

// beginStep opens the span of the current step of f, as a child of the span of f.
func (t *traced) beginStep(ctx context.Context, tracer trace.Tracer, f *fiber) context.Context {
	ctx, t.step = tracer.Start(trace.ContextWithSpan(ctx, t.span), f.step().path, trace.WithAttributes(
		attribute.String("flow.path", f.path()), attribute.String("flow.key", f.root().key),
		attribute.Int("flow.attempt", int(f.progress.attempt))))
	return ctx
}

func (t *traced) endStep(n Next) {
	if t.step == nil {
		return
	}
	t.step.SetAttributes(attribute.String("flow.outcome", n.op.String()))
	switch n.op {
	case opFail:
		t.step.SetStatus(codes.Error, brief(n.err.Error()))
	case opNone:
		t.step.SetStatus(codes.Error, "panic")
	}
	t.step.End()
	t.step = nil
}

// move continues f in another trace, as a child of parent. It returns ctx with the new span of the step.
func (t *traced) move(ctx context.Context, f *fiber, parent trace.SpanContext, opt TraceOptions) context.Context {
	s, tracer := t.spans, *t.spans.tracer.Load()
	t.endStep(Next{op: opNext})
	s.end(f, Parked, nil)
	now := s.time.now()
	t.from, t.alive, t.opt = parent, now, opt
	s.begin(tracer, f, t, now)
	return t.beginStep(ctx, tracer, f)
}

// close detaches the span from a parked fiber. end ends the span as of when the fiber was parked. The caller calls end
// without locks, because it runs user code.
func (t *traced) close() (end func()) {
	span, at := t.span, t.spans.time.wall(t.parked)
	t.span, t.alive = nil, t.parked
	return func() {
		span.SetAttributes(attribute.String("flow.status", Parked.String()))
		span.End(trace.WithTimestamp(at))
	}
}

// recorded returns the trace as positions store it, for a link after a restart.
func (t *traced) recorded() string {
	if t == nil {
		return ""
	}
	return tracing.Recorded(t.from)
}

// link links the span to that of the previous process, which a position has stored.
func (t *traced) link(parent string) {
	if t == nil || t.span == nil {
		return
	}
	if sc := tracing.Parse(parent, ""); sc.IsValid() {
		t.span.AddLink(trace.Link{SpanContext: sc})
	}
}

// watch sets the alarm unless it is set. The caller holds mu.
func (s *fiberSpans) watch() {
	if s.unset == nil && !s.stopped {
		s.wg.Add(1)
		s.unset = s.time.clock.AfterFunc(tracing.Life, s.closeParked)
	}
}

// closeParked ends the spans of fibers that have been parked for longer than tracing.Life. It runs in the goroutine of
// the alarm.
func (s *fiberSpans) closeParked() {
	defer s.wg.Done()
	var ends []func()
	s.mu.Lock()
	s.unset = nil
	now := s.time.now()
	for f := range s.open {
		if t := f.tracing(); f.state == Parked && now-t.parked > int64(tracing.Life) {
			delete(s.open, f)
			ends = append(ends, t.close())
		}
	}
	if len(s.open) > 0 {
		s.watch()
	}
	s.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// stop unsets the alarm. The caller holds mu.
func (s *fiberSpans) stop() {
	s.stopped = true
	if s.unset != nil && s.unset() {
		s.wg.Done()
	}
	s.unset = nil
}
