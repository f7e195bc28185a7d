// Package lease elects one of several processes as the leader, by a Lease in the cluster (coordination.k8s.io/v1), with
// the algorithm of client-go's leaderelection.
//
//	l, err := lease.New(cfg, lease.Options{Namespace: "operators", Name: "gateways"})
//	rt.Add("lease", l.Run)
//	reconcile.New[v1.Gateway](rt, "gateways", r, reconcile.Leader(l))
//
// # What holds
//
// Work is done in a term: its context ends when the lease is lost, before another process can have it, and when the
// process stops. A lease is given back only when all work of the term has said that it is done, so that a successor
// never works beside it.
//
// Of a process that was paused (by its host, by a debugger, by SIGSTOP) that does not hold: a context cannot end while
// nothing runs. When it goes on, another one may lead already, and the context of its term ends a moment later. That is
// what [Lease.Fence] is for: it says, by the clock and without waiting for anybody, whether the lease was renewed
// recently enough that no other process can have it, so there work learns that its time is over before anything else
// has noticed. Clocks of machines are not compared: only durations are, and
// they have to run about equally fast.
package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/rights"
)

var (
	// ErrLost is the cause of the end of a term whose lease was lost.
	ErrLost = errors.New("the lease was lost")
	// ErrNotLeading is returned by Fence when it is not certain that this process leads.
	ErrNotLeading = errors.New("this process does not lead")
)

// Options of a Lease. Namespace and Name are required.
type Options struct {
	Namespace, Name string
	// Identity of this process, unique among the candidates; the host's name and a random part by default.
	Identity string
	// Address is where others reach this process, such as "http://10.0.0.7:8081": the Lease has it while this process leads,
	// and those that do not lead tell it (Why). Default: none is told.
	Address string
	// Duration is for how long others respect a lease that is not renewed: 15 s. Renew is for how long the leader tries to
	// renew it before it gives up: two thirds of it. Retry is the time between tries: 2 s, or less for a short Renew.
	Duration, Renew, Retry time.Duration
	// Drain bounds how long the lease is held, when the process stops, for work that has not ended: 15 s.
	Drain time.Duration
	// TracerProvider makes a span of a request about the lease that fails, or takes a second or longer; all of them would
	// be one every two seconds, which tells nothing. Default: none are made.
	TracerProvider trace.TracerProvider
	// Logger gets a line for each change. Default: that of the fairlead runtime that runs Run, else none.
	Logger *slog.Logger
}

// Lease is one candidate. It is safe for concurrent use.
type Lease struct {
	opt  Options
	at   *addressed
	lock *lock
	log  *slog.Logger
	slot inherit.Slot // of log

	mu     sync.Mutex
	term   *termContext  // of the present leadership; nil if there is none
	last   *termContext  // the newest term, which may have ended
	begins chan struct{} // closed when a term begins
	ends   chan struct{} // closed when Run has returned
	busy   int           // who was told to lead and has not said that he is done
	idle   chan struct{} // closed when nobody is any more
}

// Rights says what a candidate asks of the API server: it makes the Lease a rights.Asker.
func (l *Lease) Rights() []rights.Right {
	if l == nil { // which is told where it is used
		return nil
	}
	return rights.Lease(l.opt.Namespace, l.opt.Name)
}

// New returns a candidate that takes part while Run runs.
func New(cfg *rest.Config, o Options) (*Lease, error) {
	if cfg == nil {
		return nil, errors.New("cannot make a lease: no rest.Config")
	}
	if o.Namespace == "" || o.Name == "" {
		return nil, errors.New("cannot make a lease: it needs a namespace and a name")
	}
	if o.Identity == "" {
		host, _ := os.Hostname()
		o.Identity = host + "_" + uuid.NewString()
	}
	if o.Duration <= 0 {
		o.Duration = 15 * time.Second
	}
	if o.Renew <= 0 {
		o.Renew = o.Duration * 2 / 3
	}
	if o.Retry <= 0 {
		o.Retry = min(2*time.Second, o.Renew/4)
	}
	if o.Drain <= 0 {
		o.Drain = 15 * time.Second
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.Timeout <= 0 || cfg.Timeout > o.Renew/2 {
		cfg.Timeout = o.Renew / 2 // one lost answer must not cost the lease
	}
	c, err := coordinationv1.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a lease: %w", err)
	}
	log, slot := inherit.Logger(o.Logger)
	l := &Lease{
		opt: o, slot: slot, log: log.With("lease", o.Namespace+"/"+o.Name, "identity", o.Identity),
		begins: make(chan struct{}), ends: make(chan struct{}), idle: make(chan struct{}),
	}
	close(l.idle)
	l.at = &addressed{LeasesGetter: c, identity: o.Identity, address: o.Address}
	l.lock = &lock{tracer: tracing.Tracer(o.TracerProvider, "reconcile/lease"), renew: o.Renew, keep: (o.Renew + o.Duration) / 2, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}, Client: l.at,
		LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
	}}
	if _, err := l.elector(); err != nil {
		return nil, fmt.Errorf("cannot make a lease: %w", err)
	}
	return l, nil
}

func (l *Lease) elector() (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: l.lock, LeaseDuration: l.opt.Duration, RenewDeadline: l.opt.Renew, RetryPeriod: l.opt.Retry,
		ReleaseOnCancel: true, Name: l.opt.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, // the lock tells it earlier, and in order
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				l.log.Info("leader", "leader", leader, "self", leader == l.opt.Identity)
			},
		},
	})
}

// Run takes part in the election until ctx ends; then it waits for the work of its term, and gives the lease back. It
// can be called once.
func (l *Lease) Run(ctx context.Context) error {
	defer close(l.ends)
	l.slot.From(ctx)
	l.lock.begin()
	election, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx),
		logr.FromSlogHandler(l.log.Handler())))
	defer stop()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		select {
		case <-ctx.Done():
			l.endTerm(context.Cause(ctx))
			l.drain()
			stop()
		case <-election.Done():
		}
	}()
	l.lock.won, l.lock.leave, l.lock.taken = func() { l.beginTerm(ctx) }, l.leave, func() { l.endTerm(ErrLost) }
	for election.Err() == nil {
		e, err := l.elector()
		if err != nil {
			stop()
			<-drained
			return fmt.Errorf("cannot take part in the election: %w", err)
		}
		e.Run(election)
		l.lock.lose()
		l.endTerm(ErrLost)
	}
	<-drained
	return nil
}

// drain waits for the work of the term.
func (l *Lease) drain() {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	t := time.NewTimer(l.opt.Drain)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
		l.log.Warn("work of the term has not ended: the lease is left to expire", "after", l.opt.Drain)
	}
}

// leave is asked before the lease is given back, which must not be while there is work of the term.
func (l *Lease) leave() error {
	l.endTerm(ErrLost)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy > 0 {
		return errors.New("work of the term has not ended")
	}
	return nil
}

func (l *Lease) beginTerm(ctx context.Context) {
	l.mu.Lock()
	begins := ctx.Err() == nil && l.term == nil
	if begins {
		term, end := context.WithCancelCause(ctx)
		l.term = &termContext{Context: term, lease: l, end: end}
		l.last = l.term
		close(l.begins)
	}
	l.mu.Unlock()
	if begins {
		l.log.InfoContext(ctx, "leads")
	}
}

// endTerm ends the term, if there is one. Of one that has ended since the process stops it notes that it was lost.
func (l *Lease) endTerm(cause error) {
	l.mu.Lock()
	term := l.term
	if term != nil {
		l.term, l.begins = nil, make(chan struct{})
	}
	if l.last != nil && errors.Is(cause, ErrLost) {
		l.last.lost.Store(true)
	}
	l.mu.Unlock()
	if term != nil {
		term.end(cause)
		l.log.Info("leads no more", "cause", cause)
	}
}

// termContext is the context of a term of a lease, which knows how to end and whether it was lost.
type termContext struct {
	context.Context //nolint:containedctx // it is a context
	lease           *Lease
	end             context.CancelCauseFunc
	lost            atomic.Bool
}

// termKey has contexts that are made of that of a term say which term it is.
type termKey struct{ lease *Lease }

// Value implements context.Context.
func (t *termContext) Value(key any) any {
	if key == (termKey{t.lease}) {
		return t
	}
	return t.Context.Value(key)
}

// Lead waits until this process leads. The context that it returns ends with the term; done has to be called when
// everything that was begun in it has ended.
func (l *Lease) Lead(ctx context.Context) (term context.Context, done func(), err error) {
	for {
		l.mu.Lock()
		if l.term != nil && ctx.Err() == nil {
			if l.busy == 0 {
				l.idle = make(chan struct{})
			}
			l.busy++
			term = l.term
			l.mu.Unlock()
			return term, sync.OnceFunc(l.done), nil
		}
		begins := l.begins
		l.mu.Unlock()
		select {
		case <-begins:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-l.ends:
			return nil, nil, fmt.Errorf("cannot lead: %w: the election has ended", ErrNotLeading)
		}
	}
}

func (l *Lease) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 {
		close(l.idle)
	}
}

// Fence says why a request of a term must not be sent; nil while it is certain that no other process leads, because the
// last renewal began less than Options.Renew ago, and that the term was not lost, be it won again since. Work that goes
// on while the process stops may send until the lease is given back. It looks at clocks only, so it may be asked before
// every request; what was paused after it was asked is what a deposed leader may still send.
func (l *Lease) Fence(term context.Context) error {
	if t, ok := term.Value(termKey{l}).(*termContext); ok && t.lost.Load() {
		return ErrLost
	}
	if age, held := l.lock.age(); !held || age >= l.opt.Renew {
		return ErrNotLeading
	}
	return nil
}

// Status returns who leads, by the identity; "" if nobody does, or that is not known yet. The error says why it cannot
// be known, or why this process cannot take the lease, since the last request to the server: that it is forbidden, for
// instance, or that Run is not running.
func (l *Lease) Status() (leader string, err error) { return l.lock.status() }

// Address returns where the one that leads is asked; empty if that is not known.
func (l *Lease) Address() string {
	leader, _ := l.lock.status()
	return l.at.holder(leader)
}
