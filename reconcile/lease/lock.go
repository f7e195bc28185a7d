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

// lock records when the lease was last renewed. That is the time before the request was sent, so no other process can
// have started to count earlier.
type lock struct {
	resourcelock.Interface
	won    func()       // the lease was acquired, or renewed
	leave  func() error // called before the lease is released; an error prevents that
	taken  func()       // another process has had the lease, or may have it from now on
	tracer trace.Tracer
	renew  time.Duration
	// keep is how long after the last renewal the lease counts as held. It is less than Options.Duration. The elector may
	// notice the loss later, since it waits for the requests that release the lease.
	keep time.Duration

	change  sync.Mutex // serializes calls of won and taken; locked before mu
	mu      sync.Mutex
	renewed time.Time // zero: it is not held
	expiry  *time.Timer
	asked   bool   // Run has started
	holder  string // from the last response
	// when the holder acquired the lease, by the clock of the holder
	acquired time.Time
	renewal  time.Time // by the clock of the holder
	seen     time.Time // by the local clock: time of the last response
	noticed  time.Time // by the local clock: when holder or renewal last changed
	failed   error     // error of the last request; nil if it succeeded
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
		l.learned(ctx, "", seen, nil) // the elector creates it next
	} else {
		l.learned(ctx, "read", seen, err)
	}
	// After a long pause the lease may be free again, because another holder has released it meanwhile. This process then
	// acquires it in a new term, and the old term is lost.
	age, held := l.age()
	if held && (err == nil && holder != l.Identity() || absent && age >= l.renew) {
		l.change.Lock()
		defer l.change.Unlock()
		l.lose()
		l.taken()
	}
	return r, raw, err
}

// learned records the holder in a response, or its error.
func (l *lock) learned(ctx context.Context, verb string, r resourcelock.LeaderElectionRecord, err error) {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, context.DeadlineExceeded) {
		return // the election was cancelled
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

// begin records that Run has started.
func (l *lock) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = true
}

// status returns the holder, or why it is not known.
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
		// Before it releases the lease, the elector reads it but does not check the holder. After a pause of this process the
		// holder may be another process, whose lease it would release.
		if holder, _ := l.status(); holder != l.Identity() {
			return fmt.Errorf("cannot give back the lease %s: %w", l.Describe(), errHeldByAnother)
		}
	}
	begun := time.Now()
	err := send()
	l.trace(ctx, verb, begun, err)
	if err != nil {
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // another process wrote first
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
	if age, _ := l.age(); age < l.keep { // otherwise the process was paused, and another one may hold the lease by now
		l.won()
	}
	return nil
}

// expire ends the term of a lease that was not renewed for keep, since another process may soon acquire it. A
// concurrent renewal may lose its term, too; the next renewal begins another one.
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

// age returns the time since the last renewal began, by the clock that says more. The monotonic clock may stop while a
// machine sleeps, and the wall clock may be set back.
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
