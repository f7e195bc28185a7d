package flow

import (
	"context"
	"log/slog"
)

// logEnd logs the outcome of a fiber: a warning for the failure of a root fiber that is not StartOptions.Reported,
// debug level otherwise.
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

// logGoesOn logs a failure that the fiber handles, by a retry or an error handler.
func (f *fiber) logGoesOn(text string, err error, more ...slog.Attr) {
	if !f.e.log.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	f.e.log.LogAttrs(context.Background(), slog.LevelWarn, text, append([]slog.Attr{
		slog.String("path", f.path()), slog.String("key", f.Key()), slog.Any("error", err),
	}, more...)...)
}

// logPanic logs a panic outside a step: of a callback, or of the stop function of a wait.
func (f *fiber) logPanic(err error) {
	var stack []byte
	if p, ok := err.(*PanicError); ok {
		stack = p.Stack
	}
	f.e.log.Error("panic outside of a step", "path", f.path(), "key", f.Key(), "error", err, "stack", string(stack))
}

// noteOutcome records the outcome of a step that has returned or was cancelled. began is when the step began.
// noteOutcome returns the current time.
func (f *fiber) noteOutcome(outcome op, began int64) (now int64) {
	now = f.e.now()
	took := now - began
	f.progress.note(outcome, took, now)
	f.flow.steps[f.progress.pc].observe(outcome, took)
	return now
}
