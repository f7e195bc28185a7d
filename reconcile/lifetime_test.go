package reconcile

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestLifetime: a permanent failure ends a run after failGrace. A run that has not started or is already ending does
// not change.
func TestLifetime(t *testing.T) {
	t.Parallel()
	cause := errors.New("the engine is closed")
	for _, tc := range []struct {
		reason   string
		before   func(l *lifetime, ctx context.Context, end context.CancelCauseFunc)
		accepted bool
		after    func(l *lifetime)
		ended    bool
		want     phase
	}{
		{reason: "running", accepted: true, ended: true, want: phase{running: true, stopping: true}},
		{
			reason: "already ending", before: func(_ *lifetime, _ context.Context, end context.CancelCauseFunc) { end(nil) },
			want: phase{running: true, stopping: true},
		},
		{
			reason: "already failed", before: func(l *lifetime, _ context.Context, _ context.CancelCauseFunc) { l.fail(cause) },
			ended: true, want: phase{running: true, stopping: true},
		},
		{
			reason: "stopped before",
			before: func(l *lifetime, _ context.Context, _ context.CancelCauseFunc) { l.stop(); l.over() },
			want:   phase{ended: true},
		},
		{reason: "stopped in the grace period", accepted: true, after: func(l *lifetime) { l.stop() }},
		{
			reason: "another attempt to start", accepted: true, ended: true,
			before: func(l *lifetime, ctx context.Context, end context.CancelCauseFunc) {
				l.started(cause)
				l.stop()
				l.start(ctx, end)
			},
			want: phase{running: true, stopping: true, problem: cause},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				l := &lifetime{}
				if got := l.phase(); got != (phase{}) {
					t.Errorf("before the start, the phase is %+v", got)
				}
				l.start(ctx, end)
				if got := l.phase(); got != (phase{running: true}) {
					t.Errorf("after the start, the phase is %+v", got)
				}
				if tc.before != nil {
					tc.before(l, ctx, end)
				}
				if got := l.fail(cause); got != tc.accepted {
					t.Errorf("fail returned %v", got)
				}
				if tc.accepted && ctx.Err() != nil {
					t.Error("ended before the grace period")
				}
				if tc.after != nil {
					tc.after(l)
				}
				time.Sleep(2 * failGrace)
				synctest.Wait()
				if got := errors.Is(context.Cause(ctx), cause); got != tc.ended {
					t.Errorf("the run ended with %v", context.Cause(ctx))
				}
				if got := l.phase(); got != tc.want {
					t.Errorf("the phase is %+v, want %+v", got, tc.want)
				}
			})
		})
	}
}
