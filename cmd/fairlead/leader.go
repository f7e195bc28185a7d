package main

import (
	"cmp"
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

// election makes the runtime lead while this process holds the Lease of the operations controller and, while that is
// elsewhere than before, the one in the place of before, too.
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
	l, err := c.candidate(c.systemNamespace)
	return &election{c: c, system: l}, err
}

// candidate returns a candidate for the Lease of a namespace.
func (c *controller) candidate(namespace string) (*lease.Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	l, err := lease.New(c.config, lease.Options{
		Namespace: namespace, Name: leaseName, Identity: fmt.Sprintf("%s_%d_%s", host, os.Getpid(), uuid.NewString()),
		Address: c.address, TracerProvider: c.spans.tracers(), Logger: c.log,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot elect a leader: %w", err)
	}
	return l, nil
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
	fence := func() error { return e.system.Fence(term) }
	if !e.c.isMoved() {
		e.reign.Store(&reign{term, fence})
		return term, done, nil
	}
	both, doneFormer, former, err := e.leadFormer(ctx, term)
	if err != nil {
		done()
		if ctx.Err() == nil && term.Err() != nil {
			err = lease.ErrNotLeading
		}
		return nil, nil, err
	}
	e.reign.Store(&reign{both, func() error { return cmp.Or(fence(), former()) }})
	return both, func() { doneFormer(); done() }, nil
}

// leadFormer waits until the Lease in the place of before is held, too, which is that of replicas that have not moved
// yet, or nobody else can hold it; term is that by the other Lease. All take them in this order. The term that is
// returned ends with the first of both; with it come what is to be called at its end, and the fence of that Lease.
func (e *election) leadFormer(ctx, term context.Context) (context.Context, func(), func() error, error) {
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(term, func() { end(context.Cause(term)) })()
	may, err := e.c.mayLead(held, e.c.namespace)
	switch {
	case held.Err() != nil:
		return nil, nil, nil, context.Cause(held)
	case err != nil:
		return nil, nil, nil, fmt.Errorf("cannot elect a leader: %w", err)
	case !may:
		return term, func() {}, func() error { return nil }, e.c.awaitFormer(held)
	}
	l, err := e.c.candidate(e.c.namespace)
	if err != nil {
		return nil, nil, nil, err
	}
	elected, giveBack := context.WithCancel(context.WithoutCancel(ctx))
	given := make(chan struct{})
	go func() {
		defer close(given)
		if err := l.Run(elected); err != nil {
			e.c.log.ErrorContext(ctx, "the Lease in the place of before is not held any more", "error", err)
		}
	}()
	leave := func() { giveBack(); <-given }
	former, doneFormer, err := l.Lead(held)
	if err != nil {
		leave()
		return nil, nil, nil, err
	}
	both, endBoth := context.WithCancelCause(former)
	forget := context.AfterFunc(term, func() { endBoth(context.Cause(term)) })
	return both, func() { forget(); endBoth(nil); doneFormer(); leave() }, func() error { return l.Fence(former) }, nil
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
