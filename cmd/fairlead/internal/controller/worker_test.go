package controller

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// calling is a worker with one call in progress, which ends after some time unless Run is aborted.
type calling struct {
	call    time.Duration
	aborted bool
}

var errAborted = errors.New("aborted")

func (c *calling) Run(ctx context.Context) error {
	<-ctx.Done()
	return errAborted
}

func (c *calling) Drain(ctx context.Context) error {
	select {
	case <-time.After(c.call):
		return nil
	case <-ctx.Done():
		c.aborted = true
		return ctx.Err()
	}
}

// TestRunTerm stops a worker, and ends its term.
func TestRunTerm(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason       string
		call         time.Duration
		stop, depose time.Duration // after the start; 0: never
		want         time.Duration
		aborted      bool
		err          error
	}{
		{reason: "a stop waits for the call", call: 3 * time.Second, stop: time.Second, want: 4 * time.Second},
		{
			reason: "at most for the drain time", call: time.Hour, stop: time.Second, want: 11 * time.Second,
			aborted: true,
		},
		{
			reason: "the end of the term ends the wait", call: time.Hour, stop: time.Second, depose: 2 * time.Second,
			want: 2 * time.Second, aborted: true,
		},
		{
			reason: "a stop after the end of the term waits for no call", call: time.Hour, depose: time.Second,
			want: time.Second, err: errAborted,
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			term, depose := context.WithCancel(context.WithoutCancel(ctx))
			defer depose()
			if tc.stop > 0 {
				time.AfterFunc(tc.stop, stop)
			}
			if tc.depose > 0 {
				time.AfterFunc(tc.depose, depose)
			}
			w := &calling{call: tc.call}
			begin := time.Now()
			err := runTerm(ctx, term, w, 10*time.Second, slog.New(slog.DiscardHandler))
			if took := time.Since(begin); took != tc.want || !errors.Is(err, tc.err) || w.aborted != tc.aborted {
				t.Errorf("%s: after %v, aborted %t, %v", tc.reason, took, w.aborted, err)
			}
		})
	}
}
