package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock notes when the lease was last renewed: the time before the request was sent, which is before anybody else can
// have begun to count.
type lock struct {
	resourcelock.Interface
	won    func()       // the lease was acquired, or renewed
	leave  func() error // it is about to be given back; an error if it must not be
	taken  func()       // somebody else has had it, or may have it from now on, though nobody here has noticed
	tracer trace.Tracer
	renew  time.Duration
	// keep is how long after the last renewal the lease counts as held: less than others respect it. The elector may
	// notice later, since it waits for the requests by which it wants to give it back.
	keep time.Duration

	change  sync.Mutex // held while it is told that it was won or taken, so that what is told last holds; before mu
	mu      sync.Mutex
	renewed time.Time // zero: it is not held
	expiry  *time.Timer
	asked   bool   // somebody takes part in the election
	holder  string // as the server said last
	// when the holder has taken it, by its clock
	acquired time.Time
	renewal  time.Time // of the holder, by its clock
	seen     time.Time // by ours: when the server has said so last
	noticed  time.Time // by ours: when the holder, or its renewal, was another one last
	failed   error     // why the last request has not said who leads; nil if it did
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	begun := time.Now()
	r, raw, err := l.Interface.Get(ctx)
	if !apierrors.IsNotFound(err) {
		l.trace(ctx, "get", begun, err)
	}
	var seen resourcelock.LeaderElectionRecord
	if r != nil {
		seen = *r
	}
	holder := seen.HolderIdentity
	absent := apierrors.IsNotFound(err)
	if absent {
		l.learned(ctx, "", seen, nil) // it is about to be created
	} else {
		l.learned(ctx, "read", seen, err)
	}
	// A process that was stopped for long may find the lease free again, since who had it meanwhile has given it back.
	// What it takes then is a new term: to the work of the old one it is lost.
	age, held := l.age()
	if held && (err == nil && holder != l.Identity() || absent && age >= l.renew) {
		l.change.Lock()
		defer l.change.Unlock()
		l.lose()
		l.taken()
	}
	return r, raw, err
}

// learned notes what an answer says of who leads.
func (l *lock) learned(ctx context.Context, verb string, r resourcelock.LeaderElectionRecord, err error) {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, context.DeadlineExceeded) {
		return // we have stopped asking
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed = fmt.Errorf("cannot %s the lease %s: %w", verb, l.Describe(), err)
		return
	}
	if r.HolderIdentity != l.holder || !r.RenewTime.Time.Equal(l.renewal) {
		l.noticed = time.Now()
	}
	l.seen = time.Now()
	l.failed, l.holder, l.acquired, l.renewal = nil, r.HolderIdentity, r.AcquireTime.Time, r.RenewTime.Time
}

// begin notes that there will be requests.
func (l *lock) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = true
}

// status returns who leads, or why that is not known.
func (l *lock) status() (holder string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failed != nil:
		return "", l.failed
	case !l.asked:
		return "", errNotAsked
	}
	return l.holder, nil
}

var errHeldByAnother = errors.New("another process holds it")

var errNotAsked = errors.New("nobody takes part in the election: Lease.Run is not running")

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, "create", r, func() error { return l.Interface.Create(ctx, r) })
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, "update", r, func() error { return l.Interface.Update(ctx, r) })
}

func (l *lock) write(ctx context.Context, verb string, r resourcelock.LeaderElectionRecord, send func() error) error {
	mine := r.HolderIdentity == l.Identity()
	if !mine {
		l.lose()
		if err := l.leave(); err != nil {
			return err
		}
		// The elector reads the lease before it gives it back, and does not look at the holder. After a stop of the process
		// that may be another one, whose lease it would free.
		if holder, _ := l.status(); holder != l.Identity() {
			return fmt.Errorf("cannot give back the lease %s: %w", l.Describe(), errHeldByAnother)
		}
	}
	begun := time.Now()
	err := send()
	l.trace(ctx, verb, begun, err)
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // somebody else was faster, and is read next
			l.learned(ctx, verb, r, err)
		}
		return err
	}
	l.learned(ctx, verb, r, nil)
	if !mine {
		return nil
	}
	l.change.Lock()
	defer l.change.Unlock()
	l.mu.Lock()
	l.renewed = begun
	if l.expiry != nil {
		l.expiry.Stop()
	}
	l.expiry = time.AfterFunc(time.Until(begun.Add(l.keep)), l.expire)
	l.mu.Unlock()
	if age, _ := l.age(); age < l.keep { // else the process was stopped meanwhile, and another one may have it by now
		l.won()
	}
	return nil
}

// expire ends the term of a lease that was not renewed for so long that another one may soon have it. One that is
// renewed at this very moment may lose its term, too: the next renewal begins another.
func (l *lock) expire() {
	l.change.Lock()
	defer l.change.Unlock()
	if age, held := l.age(); held && age >= l.keep {
		l.lose()
		l.taken()
	}
}

func (l *lock) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = time.Time{}
	if l.expiry != nil {
		l.expiry.Stop()
	}
}

// age returns how long ago the last renewal was begun, by whichever clock says more: the monotonic one may stand still
// while a machine sleeps, the wall clock may be set back.
func (l *lock) age() (age time.Duration, held bool) {
	l.mu.Lock()
	renewed := l.renewed
	l.mu.Unlock()
	if renewed.IsZero() {
		return 0, false
	}
	now := time.Now()
	return max(now.Sub(renewed), now.Round(0).Sub(renewed.Round(0))), true
}
