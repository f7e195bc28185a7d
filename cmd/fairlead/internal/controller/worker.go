package controller

import (
	"context"
	"log/slog"
	"time"
)

// worker runs operations. An executor implements it.
type worker interface {
	// Run runs operations until ctx ends, which aborts the running calls.
	Run(ctx context.Context) error
	// Drain starts no further calls, and waits for the running ones until ctx ends.
	Drain(ctx context.Context) error
}

// runTerm runs a worker until ctx ends, and then until the running calls have ended, at most for drain. It always ends
// with the term. A deposed leader ends the program; its successor continues from the recorded state.
func runTerm(ctx, term context.Context, w worker, drain time.Duration, log *slog.Logger) error {
	running, end := context.WithCancelCause(term)
	defer end(nil)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	if term.Err() != nil {
		return <-ended
	}
	log.InfoContext(ctx, "stopping: waiting for calls in progress", "atMost", drain)
	bounded, cancel := context.WithTimeout(running, drain)
	defer cancel()
	if err := w.Drain(bounded); err != nil {
		log.WarnContext(ctx, "aborting calls in progress; they will be repeated with the same keys", "error", err)
	}
	end(context.Cause(ctx))
	log.InfoContext(ctx, "all operations stopped in this process", "cause", <-ended)
	return nil
}
