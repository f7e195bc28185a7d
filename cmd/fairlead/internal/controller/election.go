package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/reconcile/lease"
)

// leaseName is the Lease of the operations controller.
const leaseName = "fairlead-controller"

var errDeposed = errors.New("lost the Lease " + leaseName + ": another replica leads now")

// election is the leader election by the Lease of the operations controller. The runtime stops it after all other work.
// A nil election lets the process work always.
type election struct {
	*lease.Lease
	current atomic.Pointer[context.Context] // the latest term; nil before the first
}

// newElection returns the election of a process. It chooses the identity of the process.
func newElection(config *rest.Config, o lease.Options) (*election, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	o.Identity = fmt.Sprintf("%s_%d_%s", host, os.Getpid(), uuid.NewString())
	l, err := lease.New(config, o)
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

// fence returns an error if the executor must not send requests now. It is nil without an election.
func (e *election) fence() error {
	if e == nil {
		return nil
	}
	term := e.current.Load()
	if term == nil {
		return lease.ErrNotLeading
	}
	return e.Fence(*term)
}

// term returns the context of the present leadership. The executor ends with it. Without an election it never ends.
func (e *election) term(ctx context.Context) context.Context {
	if e == nil {
		return context.WithoutCancel(ctx)
	}
	return *e.current.Load()
}
