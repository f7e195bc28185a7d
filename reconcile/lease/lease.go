// Package lease elects one of several processes as the leader. It uses a Lease in the cluster (coordination.k8s.io/v1)
// in the same way as client-go's leaderelection, so processes with either may be candidates for one Lease.
//
//	l, err := lease.New(cfg, lease.Options{Namespace: "operators", Name: "gateways"})
//	rt.Add("lease", l.Run)
//	reconcile.New[v1.Gateway](rt, "gateways", r, reconcile.Leader(l))
//
// # Guarantees
//
// A term is a period of leadership with a context. The context ends when the lease is lost, before another process can
// acquire it, and when the process stops. A process releases the lease only after all work of its term has called done.
// So the successor never works at the same time.
//
// This does not hold for a process that was paused, by its host, a debugger or SIGSTOP. Its contexts cannot end while
// it is paused. When it resumes, another process may already lead, and the context ends a moment later. [Lease.Fence]
// covers this case. It checks, by the clock and without a request, that the last renewal is too recent for another
// process to have the lease. It therefore detects the loss before the context ends.
//
// The package compares only durations, never the clocks of different machines. The clocks must run at about the same
// rate.
package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/rights"
)

var (
	// ErrLost is the cause that ends a term when the lease is lost.
	ErrLost = errors.New("the lease was lost")
	// ErrNotLeading is returned by [Lease.Fence] when it is not certain that this process leads.
	ErrNotLeading = errors.New("this process does not lead")
)

// Options configures a Lease. Namespace and Name are required.
type Options struct {
	Namespace, Name string
	// Identity is unique among the candidates; the default is the host name and a random part.
	Identity string
	// Address is where other processes reach this process, such as "http://10.0.0.7:8081". The Lease carries it while this
	// process leads, and [Lease.Why] of the other processes shows it. By default the Lease carries no address.
	Address string
	// Duration is how long the other candidates respect a lease without a renewal; the default is 15 s. Renew is how long
	// the leader tries to renew it before it gives up; the default is two thirds of Duration. Retry is the time between
	// attempts; the default is 2 s, or a quarter of Renew if that is less.
	Duration, Renew, Retry time.Duration
	// Drain bounds how long a stopping process keeps the lease for unfinished work; the default is 15 s.
	Drain time.Duration
	// TracerProvider is for spans of the requests about the lease. Only failed requests and those of at least a second
	// have spans, since a span for each renewal is not useful. By default there are none.
	TracerProvider trace.TracerProvider
	// Logger logs each change of the leader. The default is that of the fairlead runtime that runs Run, or none.
	Logger *slog.Logger
}

// Lease is one candidate in the election. It is safe for concurrent use.
type Lease struct {
	opt     Options
	claim   leasing.Claim // only the goroutine of Run uses it
	renewal leasing.Renewal
	leader  atomic.Pointer[leader]
	log     *slog.Logger
	slot    inherit.Slot // of log

	mu     sync.Mutex
	term   *termContext  // the current term; nil if this process does not lead
	last   *termContext  // the newest term, which may have ended
	begins chan struct{} // closed when a term begins
	ends   chan struct{} // closed when Run has returned
	busy   int           // calls of Lead without done
	idle   chan struct{} // closed when busy is 0
}

// Rights returns the permissions that a candidate needs. It implements rights.Asker.
func (l *Lease) Rights() []rights.Right {
	if l == nil { // reconcile reports a nil Lease
		return nil
	}
	return rights.Lease(l.opt.Namespace, l.opt.Name)
}

// New returns a candidate. It takes part in the election while Run runs.
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
	o.Duration = cmp.Or(max(o.Duration, 0), 15*time.Second)
	o.Renew = cmp.Or(max(o.Renew, 0), o.Duration*2/3)
	o.Retry = cmp.Or(max(o.Retry, 0), min(2*time.Second, o.Renew/4))
	o.Drain = cmp.Or(max(o.Drain, 0), 15*time.Second)
	if o.Duration <= o.Renew || float64(o.Renew) <= jitter*float64(o.Retry) {
		return nil, fmt.Errorf("cannot make a lease: Duration %v, Renew %v and Retry %v are too close to each other",
			o.Duration, o.Renew, o.Retry)
	}
	c, err := leasing.NewClient(cfg, o.Namespace, o.Renew/2) // one lost response must not lose the lease
	if err != nil {
		return nil, fmt.Errorf("cannot make a lease: %w", err)
	}
	c.Tracer, c.Identity = tracing.Tracer(o.TracerProvider, "reconcile/lease"), o.Identity
	log, slot := inherit.Logger(o.Logger)
	l := &Lease{
		opt: o, slot: slot, log: log.With("lease", c.Describe(o.Name), "identity", o.Identity),
		claim: leasing.Claim{
			Record: leasing.Record{Client: c, Name: o.Name}, Identity: o.Identity, Duration: o.Duration,
			Annotations: map[string]string{},
		},
		// A term ends before others may take the lease.
		renewal: leasing.Renewal{Bound: (o.Renew + o.Duration) / 2},
		begins:  make(chan struct{}), ends: make(chan struct{}), idle: make(chan struct{}),
	}
	if o.Address != "" {
		l.claim.Annotations[addressAnnotation] = o.Identity + " " + o.Address
	}
	close(l.idle)
	return l, nil
}

// drain waits for the work of the term, at most Options.Drain.
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

// endTerm ends the current term, if there is one. If the cause is ErrLost, it also marks the latest term as lost, even
// if that has already ended because the process stops.
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

// termContext is the context of a term, with the state of the term.
type termContext struct {
	context.Context //nolint:containedctx // it is a context
	lease           *Lease
	end             context.CancelCauseFunc
	lost            atomic.Bool
}

// termKey is the context key of the term of a lease.
type termKey struct{ lease *Lease }

// Value implements context.Context.
func (t *termContext) Value(key any) any {
	if key == (termKey{t.lease}) {
		return t
	}
	return t.Context.Value(key)
}

// Lead waits until this process leads, and returns a context that ends with the term. The caller must call done when
// all work of the term has ended.
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

// Fence returns nil while it is certain that no other process leads and that the term was not lost. The last renewal
// must have begun less than Options.Renew ago. A term stays lost even if this process wins the lease again. While the
// process stops, unfinished work may send requests until the lease is released.
//
// Fence reads only clocks, so it is cheap enough for each request. A process that is paused between Fence and its
// request may still send that request after it has lost the lease.
func (l *Lease) Fence(term context.Context) error {
	if t, ok := term.Value(termKey{l}).(*termContext); ok && t.lost.Load() {
		return ErrLost
	}
	if age, held := l.renewal.Age(); !held || age >= l.opt.Renew {
		return ErrNotLeading
	}
	return nil
}

// Status returns the identity of the leader, or "" if there is none or it is not known yet. The error is that of the
// last request to the server, for example because it is forbidden. Status also returns an error if Run is not running.
func (l *Lease) Status() (leader string, err error) { return l.leader.Load().identity() }

// Address returns the address of the leader, or "" if it is not known.
func (l *Lease) Address() string { return l.leader.Load().address() }
