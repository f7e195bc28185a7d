package flow

import (
	"context"
	"log/slog"
)

// logEnd logs how a fiber ended: a failure that nobody else reports as a warning, the rest at debug level.
func (f *fiber) logEnd(status Status, err error) {
	level := slog.LevelDebug
	if status == Failed && f.join == nil && !f.reported {
		level = slog.LevelWarn
	}
	if !f.e.log.Enabled(context.Background(), level) {
		return
	}
	f.e.log.LogAttrs(context.Background(), level, "fiber ended",
		slog.String("path", f.path()), slog.String("key", f.Key()),
		slog.Uint64("epoch", f.Epoch()), slog.String("status", status.String()), slog.Any("error", err),
		slog.String("trail", f.progress.trailOf(f.flow.def).String()))
}

// logGoesOn logs a failure that the fiber deals with itself.
func (f *fiber) logGoesOn(text string, err error, more ...slog.Attr) {
	if !f.e.log.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	f.e.log.LogAttrs(context.Background(), slog.LevelWarn, text, append([]slog.Attr{
		slog.String("path", f.path()), slog.String("key", f.Key()), slog.Any("error", err),
	}, more...)...)
}

// logPanic tells of a panic that has no step to fail: of a callback, or of the stop function of a wait.
func (f *fiber) logPanic(err error) {
	var stack []byte
	if p, ok := err.(*PanicError); ok {
		stack = p.Stack
	}
	f.e.log.Error("panic outside of a step", "path", f.path(), "key", f.Key(), "error", err, "stack", string(stack))
}

// noteOutcome notes the outcome of a step that has just run, or was cut off by a cancellation, and began at the given
// time. It returns the time.
func (f *fiber) noteOutcome(outcome op, began int64) (now int64) {
	now = f.e.now()
	took := now - began
	f.progress.note(outcome, took, now)
	f.flow.steps[f.progress.pc].observe(outcome, took)
	return now
}
