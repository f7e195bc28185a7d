package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slowLeader leads after a minute, or fails.
type slowLeader struct{ err error }

func (l slowLeader) Lead(ctx context.Context) (context.Context, func(), error) {
	time.Sleep(time.Minute)
	return ctx, func() {}, l.err
}

func (slowLeader) Fence(context.Context) error { return nil }

func (slowLeader) Status() (string, error) { return "other-pod", nil }

// TestElections: a term begins when the process leads. A long wait is logged with the current leader.
func TestElections(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for _, tc := range []struct {
		reason string
		leader Leadership
		waited time.Duration
		err    error
		logged int // lines about the wait, after 25 s and 50 s
	}{
		{"no election", nil, 0, nil, 0},
		{"leads", slowLeader{}, time.Minute, nil, 2},
		{"the election fails", slowLeader{failed}, time.Minute, failed, 2},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				e := &elections{leader: tc.leader, warnAfter: 25 * time.Second, log: slog.New(slog.NewTextHandler(&log, nil))}
				begun := time.Now()
				term, done, err := e.await(t.Context())
				if !errors.Is(err, tc.err) || (term == nil) != (tc.err != nil) || (done == nil) != (tc.err != nil) {
					t.Errorf("the term is %v, %v", term, err)
				}
				if waited := time.Since(begun); waited != tc.waited {
					t.Errorf("the wait took %v", waited)
				}
				if n := strings.Count(log.String(), "leader=other-pod"); n != tc.logged {
					t.Errorf("%d lines name the leader, want %d:\n%s", n, tc.logged, &log)
				}
			})
		})
	}
}
