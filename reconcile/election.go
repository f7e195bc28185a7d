package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// elections waits for the terms in which this process leads. It has no state.
type elections struct {
	leader    Leadership // nil: the process always leads
	warnAfter time.Duration
	log       *slog.Logger
}

// await returns the context of the next term. The caller calls done when all work of the term has ended.
func (e *elections) await(ctx context.Context) (term context.Context, done func(), err error) {
	if e.leader == nil {
		return ctx, func() {}, nil
	}
	defer remind(e.warnAfter, func(waited time.Duration) {
		leader, err := leaderOf(e.leader)
		if err != nil {
			e.log.WarnContext(ctx, "waits for leadership", "for", waited, "error", err)
			return
		}
		e.log.InfoContext(ctx, "waits for leadership", "for", waited, "leader", leader)
	})()
	if term, done, err = e.leader.Lead(ctx); err != nil {
		return nil, nil, fmt.Errorf("cannot take part in the election: %w", err)
	}
	return term, done, nil
}

// leaderOf returns the current leader, or an error if it is not known. It returns neither if the Leadership has no
// Status method. Package lease has one.
func leaderOf(l Leadership) (leader string, err error) {
	if asked, ok := l.(interface {
		Status() (leader string, err error)
	}); ok {
		return asked.Status()
	}
	return "", nil
}
