package flow

import (
	"context"
	"log/slog"
)

// end ends f. It runs the callback first, then notifies waiters. began is when the last activity of f began. A second
// call, which happens if the callback ends its goroutine, has no effect.
func (l *lifecycle) end(f *fiber, status Status, err error, began int64) {
	stopContext(f)
	if !l.seal(f) {
		return
	}
	if f.progress.cancelled() {
		cause := f.x.Load().cause
		if status = Cancelled; matches(cause, ErrMoved) {
			status = Moved
		}
		err = &cancelError{Path: f.path(), Key: f.root().key, Cause: cause}
		if len(f.flow.steps) > 0 {
			noteOutcome(f, opCancel, began)
		}
	}
	if err != nil {
		f.ext().err = err
	}
	defer l.publish(f, status, err)
	dropAwait(f, l.log)
	f.journal().ended(status, err)
	logEnd(l.log, f, status, err)
	l.spans.end(f, status, err)
	if f.onEnd != nil {
		res := Result{Handle: Handle{f}, Status: status, Err: err, Begun: f.begun}
		if err := guard(f, func() error { f.onEnd(res); return nil }); err != nil {
			logPanic(l.log, f, err)
		}
	}
}

// exited ends f, whose code has ended its goroutine.
func (l *lifecycle) exited(f *fiber) { l.end(f, Failed, inPath(f, errGoexit), l.time.now()) }

// logEnd logs the outcome of a fiber: a warning for the failure of a root fiber that is not StartOptions.Reported,
// debug level otherwise.
func logEnd(log *slog.Logger, f *fiber, status Status, err error) {
	level := slog.LevelDebug
	if status == Failed && f.join == nil && !f.reported {
		level = slog.LevelWarn
	}
	if !log.Enabled(context.Background(), level) {
		return
	}
	root, progress := f.root(), f.progress.snapshot()
	log.LogAttrs(context.Background(), level, "fiber ended",
		slog.String("path", f.path()), slog.String("key", root.key),
		slog.Uint64("epoch", root.epoch), slog.String("status", status.String()), slog.Any("error", err),
		slog.String("trail", progress.trail.entries(f.flow.def.path).String()))
}
