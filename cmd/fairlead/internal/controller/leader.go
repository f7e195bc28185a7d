package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// leaseName is the Lease of the operations controller.
const leaseName = "fairlead-controller"

var errDeposed = errors.New("lost the Lease " + leaseName + ": another replica leads now")

// election is the leader election by the Lease of the operations controller. The runtime stops it after all other work.
type election struct {
	*lease.Lease
	current atomic.Pointer[context.Context] // the term of the runtime and the executor; nil before the first
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
	return &election{Lease: l}, nil
}

// Lead waits until this process is the leader.
func (e *election) Lead(ctx context.Context) (term context.Context, done func(), err error) {
	if term, done, err = e.Lease.Lead(ctx); err == nil {
		e.current.Store(&term)
	}
	return term, done, err
}

// fence returns an error if the executor must not send requests now.
func (c *controller) fence() error {
	if !c.leaderElect {
		return nil
	}
	term := c.election.current.Load()
	if term == nil {
		return lease.ErrNotLeading
	}
	return c.election.Fence(*term)
}

// term returns the context of the present leadership. The executor ends with it.
func (c *controller) term(ctx context.Context) context.Context {
	if c.leaderElect {
		return *c.election.current.Load()
	}
	return context.WithoutCancel(ctx)
}
