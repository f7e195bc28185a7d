package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// leaseName is the Lease of the operations controller.
const leaseName = "fairlead-controller"

var errDeposed = errors.New("lost the Lease " + leaseName + ": another replica leads now")

// whileLeading waits for the Lease, runs fn while it is held, and gives it back when fn has returned. fn has to end soon after ctx has, and at
// once with the term; the Lease is renewed meanwhile. fence says why nothing may be sent any more in that term. It returns errDeposed when the
// Lease was lost.
func whileLeading(
	ctx context.Context, config *rest.Config, namespace string, log *slog.Logger, fn func(ctx, term context.Context, fence func() error) error,
) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l, err := lease.New(config, lease.Options{
		Namespace: namespace, Name: leaseName, Identity: fmt.Sprintf("%s_%d_%s", host, os.Getpid(), uuid.NewString()), Logger: log,
	})
	if err != nil {
		return fmt.Errorf("cannot elect a leader: %w", err)
	}
	election, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	elected := make(chan error, 1)
	go func() { elected <- l.Run(election) }()
	err = inTerm(ctx, l, fn)
	giveBack()
	return errors.Join(err, <-elected)
}

// inTerm runs fn when this process leads.
func inTerm(ctx context.Context, l *lease.Lease, fn func(ctx, term context.Context, fence func() error) error) error {
	term, done, err := l.Lead(ctx)
	switch {
	case err == nil:
		defer done()
	case ctx.Err() != nil:
		return nil
	default:
		return fmt.Errorf("cannot elect a leader: %w", err)
	}
	err = fn(ctx, term, func() error { return l.Fence(term) })
	if ctx.Err() == nil && term.Err() != nil {
		return errDeposed
	}
	return err
}

// fence says why the executor may not send anything now.
func (c *controller) fence() error {
	switch fence := c.term.Load(); {
	case !c.leaderElect:
		return nil
	case fence == nil:
		return lease.ErrNotLeading
	default:
		return (*fence)()
	}
}
