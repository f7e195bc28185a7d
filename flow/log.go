package flow

import (
	"context"
	"log/slog"
)

// logHandled logs a failure that the fiber handles, by a retry or an error handler.
func logHandled(log *slog.Logger, f *fiber, text string, err error, more ...slog.Attr) {
	if !log.Enabled(context.Background(), slog.LevelWarn) {
		return
	}
	log.LogAttrs(context.Background(), slog.LevelWarn, text, append([]slog.Attr{
		slog.String("path", f.path()), slog.String("key", f.root().key), slog.Any("error", err),
	}, more...)...)
}

// logPanic logs a panic outside a step: of a callback, or of the stop function of a wait.
func logPanic(log *slog.Logger, f *fiber, err error) {
	var stack []byte
	if p, ok := err.(*PanicError); ok {
		stack = p.Stack
	}
	log.Error("panic outside of a step", "path", f.path(), "key", f.root().key, "error", err, "stack", string(stack))
}

// noteOutcome records the outcome of a step that has returned or was cancelled. began is when the step began.
// noteOutcome returns the current time.
func noteOutcome(f *fiber, outcome op, began int64) (now int64) {
	now = f.e.time.now()
	took := now - began
	f.progress.note(outcome, took, now)
	f.flow.steps[f.progress.pc].observe(outcome, took)
	return now
}
