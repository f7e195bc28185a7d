package flow

import (
	"context"
	"log/slog"
	"runtime/pprof"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// tracing is what a fiber keeps for its spans.
type tracing struct {
	link trace.SpanContext // of who started or forked it
	span trace.Span        // of the fiber
}

// linkTrace remembers the span that the fiber was started in.
func (f *fiber) linkTrace(ctx context.Context) { f.linkSpan(trace.SpanContextFromContext(ctx)) }

func (f *fiber) linkSpan(sc trace.SpanContext) {
	if f.e.opt.Tracer != nil && sc.IsValid() {
		f.ext().trace = &tracing{link: sc}
	}
}

func (f *fiber) tracing() *tracing {
	if x := f.x.Load(); x != nil {
		return x.trace
	}
	return nil
}

func (f *fiber) spanContext() trace.SpanContext {
	if t := f.tracing(); t != nil && t.span != nil {
		return t.span.SpanContext()
	}
	return trace.SpanContext{}
}

// startTrace opens the span of the fiber: a child of the one that it was started or forked in.
func (r *run) startTrace() {
	if r.e.opt.Tracer == nil {
		return
	}
	f, x := r.f, r.f.ext()
	if x.trace == nil {
		x.trace = &tracing{}
	}
	if x.trace.span != nil {
		return
	}
	ctx := context.Background()
	if x.trace.link.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, x.trace.link)
	}
	_, x.trace.span = r.e.opt.Tracer.Start(ctx, f.flow.def.name, trace.WithAttributes(
		attribute.String("flow.name", f.flow.def.name), attribute.String("flow.key", f.Key()), attribute.Int64("flow.epoch", int64(f.Epoch()))))
}

func (r *run) endTrace(status Status, err error) {
	t := r.f.tracing()
	if t == nil || t.span == nil {
		return
	}
	t.span.SetAttributes(attribute.String("flow.status", status.String()))
	if err != nil {
		t.span.SetStatus(codes.Error, err.Error())
	}
	t.span.End()
}

// traced runs a step with a span, if there is a tracer, and with pprof labels, if they are wanted.
func (r *run) traced(st *step) (n Next) {
	f, ctx := r.f, r.ctx
	if tracer := r.e.opt.Tracer; tracer != nil {
		var span trace.Span
		ctx, span = tracer.Start(trace.ContextWithSpanContext(ctx, f.spanContext()), st.path, trace.WithAttributes(
			attribute.String("flow.path", f.path()), attribute.String("flow.key", f.Key()), attribute.Int("flow.attempt", int(f.attempt))))
		defer func() {
			span.SetAttributes(attribute.String("flow.outcome", n.op.String()))
			if n.op == opFail {
				span.SetStatus(codes.Error, n.err.Error())
			}
			if n.op == opNone {
				span.SetStatus(codes.Error, "panic")
			}
			span.End()
		}()
	}
	if !r.e.opt.Labels {
		return st.run(ctx, f)
	}
	pprof.Do(ctx, pprof.Labels("flow", f.flow.def.name, "step", st.path, "key", f.Key()), func(ctx context.Context) {
		n = st.run(ctx, f)
	})
	return n
}

// logEnd tells how a fiber ended: what failed as a warning, the rest for those who look closely.
func (r *run) logEnd(status Status, err error) {
	f, level := r.f, slog.LevelDebug
	if status == Failed && f.join == nil {
		level = slog.LevelWarn
	}
	if !r.e.log.Enabled(context.Background(), level) {
		return
	}
	f.mu.Lock()
	trail := f.trail.entries(f.flow.def)
	f.mu.Unlock()
	r.e.log.LogAttrs(context.Background(), level, "fiber ended", slog.String("path", f.path()), slog.String("key", f.Key()),
		slog.Uint64("epoch", f.Epoch()), slog.String("status", status.String()), slog.Any("error", err), slog.String("trail", trail.String()))
}

// logPanic tells of a panic that has no step to fail: of a callback, or of the stop function of a wait.
func (r *run) logPanic(err error) {
	var stack []byte
	if p, ok := err.(*PanicError); ok {
		stack = p.Stack
	}
	r.e.log.Error("panic outside of a step", "path", r.f.path(), "key", r.f.Key(), "error", err, "stack", string(stack))
}
