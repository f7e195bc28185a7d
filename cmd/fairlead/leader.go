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

// election runs the leader election of the runtime by the Lease of the operations controller.
type election struct {
	c      *controller
	system *lease.Lease
	reign  atomic.Pointer[reign] // nil while this process is not the leader
}

// reign is a period of leadership of this process.
type reign struct {
	term  context.Context //nolint:containedctx // of the runtime and the executor
	fence func() error    // returns an error once requests must not be sent
}

// newElection returns the election of a controller with the given address for other replicas. Empty: unknown.
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

// Run takes part in the election. The runtime stops it after all other work.
func (e *election) Run(ctx context.Context) error { return e.system.Run(ctx) }

// Status returns the leader.
func (e *election) Status() (leader string, err error) { return e.system.Status() }

// Address returns the address of the leader.
func (e *election) Address() string { return e.system.Address() }

// Why returns the leader as the cause if this process does not lead, and since when.
func (e *election) Why(ctx context.Context, of why.Object) []why.Cause { return e.system.Why(ctx, of) }

// Fence returns an error once requests of a term must not be sent.
func (e *election) Fence(term context.Context) error {
	r := e.reign.Load()
	if r == nil || r.term != term {
		return lease.ErrNotLeading
	}
	return r.fence()
}

// Lead waits until this process is the leader.
func (e *election) Lead(ctx context.Context) (context.Context, func(), error) {
	term, done, err := e.system.Lead(ctx)
	if err != nil {
		return nil, nil, err
	}
	e.reign.Store(&reign{term, func() error { return e.system.Fence(term) }})
	return term, done, nil
}

// fence returns an error if the executor must not send requests now.
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

// term returns the context of the present leadership. The executor ends with it.
func (c *controller) term(ctx context.Context) context.Context {
	if c.leaderElect {
		return c.election.reign.Load().term
	}
	return context.WithoutCancel(ctx)
}
