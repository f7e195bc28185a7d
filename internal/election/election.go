// Package election elects one process of several by a Lease. It is client-go's elector with an end that can be waited for,
// and a fence.
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Times of a lease: for how long it holds, until when it must have been renewed, and how often that is tried.
const (
	duration = 15 * time.Second
	deadline = 10 * time.Second
	retry    = 2 * time.Second
)

// ErrLost is why a term, and a request after it, ends.
var ErrLost = errors.New("leadership lost")

// Elector takes part in an election while Run runs. It is safe for concurrent use.
type Elector struct {
	elector *leaderelection.LeaderElector
	log     *slog.Logger

	mu      sync.Mutex
	term    context.Context //nolint:containedctx // it is what the elector hands out; nil while it does not lead
	end     context.CancelCauseFunc
	changed chan struct{} // closed when a term begins
}

// New returns an elector for the Lease namespace/name. It sends nothing.
func New(cfg *rest.Config, namespace, name string, log *slog.Logger) (*Elector, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = deadline / 2 // an answer that comes later is of no use
	client, err := coordination.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot elect a leader: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	e := &Elector{log: log, changed: make(chan struct{})}
	e.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
			Client:     client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + uuid.NewString()},
		},
		LeaseDuration: duration, RenewDeadline: deadline, RetryPeriod: retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: e.started, // in a goroutine of its own, perhaps late
			OnStoppedLeading: e.stopped, // after the context of the former was cancelled
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot elect a leader: %w", err)
	}
	return e, nil
}

// Run takes part until ctx ends, and gives the lease back then. End the work of the term before.
func (e *Elector) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(e.log.Handler()))
	for ctx.Err() == nil {
		e.elector.Run(ctx)
	}
	return nil
}

func (e *Elector) started(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil || e.term != nil {
		return
	}
	e.term, e.end = context.WithCancelCause(context.Background())
	close(e.changed)
}

func (e *Elector) stopped() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil {
		return
	}
	e.end(ErrLost)
	e.term, e.end, e.changed = nil, nil, make(chan struct{})
}

// Lead waits until this process leads and returns a context that ends when it does no more, with cause ErrLost.
func (e *Elector) Lead(ctx context.Context) (context.Context, error) {
	for {
		e.mu.Lock()
		term, changed := e.term, e.changed
		e.mu.Unlock()
		if term != nil {
			return term, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Fence returns nil while it is certain that no other process leads.
func (e *Elector) Fence() error {
	e.mu.Lock()
	leading := e.term != nil
	e.mu.Unlock()
	if !leading {
		return ErrLost
	}
	if err := e.elector.Check(deadline - duration); err != nil { // not renewed in time, which the elector has yet to notice
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil
}
