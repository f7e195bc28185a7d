package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/fairlead-io/fairlead/reconcile/lease"
	"github.com/fairlead-io/fairlead/why"
)

// leaseName is the Lease of the operations controller.
const leaseName = "fairlead-controller"

var errDeposed = errors.New("lost the Lease " + leaseName + ": another replica leads now")

// election makes the runtime lead while this process holds the Lease of the operations controller.
type election struct {
	c      *controller
	system *lease.Lease
	reign  atomic.Pointer[reign] // nil while this process does not lead
}

// reign is the time in which this process leads.
type reign struct {
	term  context.Context //nolint:containedctx // of the runtime and the executor
	fence func() error    // says why nothing may be sent any more
}

// newElection returns the election of a controller that others reach at an address; empty: that is not known.
func newElection(c *controller, address string) (*election, error) {
	c.address = address
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l, err := lease.New(c.config, lease.Options{
		Namespace: c.systemNamespace, Name: leaseName, Identity: fmt.Sprintf("%s_%d_%s", host, os.Getpid(), uuid.NewString()),
		Address: address, TracerProvider: c.spans.tracers(), Logger: c.log,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot elect a leader: %w", err)
	}
	return &election{c: c, system: l}, nil
}

// Run takes part in the election. The runtime ends it when all work has ended.
func (e *election) Run(ctx context.Context) error { return e.system.Run(ctx) }

// Status returns who leads.
func (e *election) Status() (leader string, err error) { return e.system.Status() }

// Address returns where the one that leads is asked.
func (e *election) Address() string { return e.system.Address() }

// Why says who leads in place of this process, and since when.
func (e *election) Why(ctx context.Context, of why.Object) []why.Cause { return e.system.Why(ctx, of) }

// Fence says why nothing may be sent any more in a term.
func (e *election) Fence(term context.Context) error {
	r := e.reign.Load()
	if r == nil || r.term != term {
		return lease.ErrNotLeading
	}
	return r.fence()
}

// Lead waits until this process leads.
func (e *election) Lead(ctx context.Context) (context.Context, func(), error) {
	term, done, err := e.system.Lead(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.reign.Store(&reign{term, func() error { return e.system.Fence(term) }})
	return term, done, nil
}

// fence says why the executor may not send anything now.
func (c *controller) fence() error {
	if !c.leaderElect {
		return nil
	}
	r := c.election.reign.Load()
	if r == nil {
		return lease.ErrNotLeading
	}
	return r.fence()
}

// term returns the context of the time in which this process leads: the executor ends with it, however it is told to.
func (c *controller) term(ctx context.Context) context.Context {
	if c.leaderElect {
		return c.election.reign.Load().term
	}
	return context.WithoutCancel(ctx)
}
