package leasing

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrHeld means that another identity has the Lease, or has had it since the last renewal.
var ErrHeld = errors.New("another holder has the lease")

// Claim is a Lease for which identities compete. It writes the Lease as the leader election of client-go does, so that
// programs with either may compete. The Lease is free if it does not exist, if its holder has released it, or if its
// holder has not renewed it for its duration. Only one goroutine may use a Claim at a time.
type Claim struct {
	Record
	// Identity is the holder that Take writes.
	Identity string
	// Duration is how long others respect the Lease without a renewal. It is rounded up to seconds. Take also respects a
	// Lease that names no duration for so long.
	Duration time.Duration
	Clock    Clock
	// Annotations are set when Identity is written as the holder. Others are kept.
	Annotations map[string]string

	other Observation // of the Lease of another holder
}

// Holder returns the identity that holds a Lease. It is "" if the Lease is free or nil.
func Holder(l *Lease) string {
	if l == nil {
		return ""
	}
	return value(l.Spec.HolderIdentity)
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Take reads the Lease, and makes Identity its holder if it is free or held by Identity. It always writes, so that a
// concurrent release by another process of the same identity conflicts. begun is the time before the write. The error
// is ErrHeld while another holder has the Lease.
func (c *Claim) Take(ctx context.Context) (begun Stamp, err error) {
	err = c.Read(ctx)
	begun = c.Clock.Stamp()
	fill := func(l *Lease) { c.fill(l, begun.Time) }
	switch {
	case apierrors.IsNotFound(err):
		return begun, c.Create(ctx, fill)
	case err != nil:
		return begun, err
	case c.isHeldByAnother(begun):
		return begun, fmt.Errorf("%w: %s", ErrHeld, Holder(c.last))
	}
	return begun, c.Update(ctx, fill)
}

func (c *Claim) isHeldByAnother(now Stamp) bool {
	if holder := Holder(c.last); holder == "" || holder == c.Identity {
		return false
	}
	c.other.See(c.last, now)
	duration := time.Duration(value(c.last.Spec.LeaseDurationSeconds)) * time.Second
	if duration <= 0 {
		duration = c.Duration
	}
	return c.other.Unchanged(now.Time) < duration
}

// Unrenewed returns for how long the holder in the last response has not renewed the Lease. It is 0 for Identity.
func (c *Claim) Unrenewed() time.Duration {
	if seen := c.other.Lease(); seen == nil || seen.ResourceVersion != c.last.ResourceVersion {
		return 0
	}
	return c.other.Unchanged(c.Clock.Stamp().Time)
}

// Renew extends the hold of Identity by a renewal that begins at begun. The error is ErrHeld if another identity has
// or has had the Lease, and ErrConflict if the next Renew may succeed at once. Renew creates a deleted Lease again.
func (c *Claim) Renew(ctx context.Context, begun Stamp) error {
	fill := func(l *Lease) { c.fill(l, begun.Time) }
	err := c.Record.Renew(ctx, fill)
	if errors.Is(err, ErrDeleted) {
		switch err := c.Read(ctx); {
		case apierrors.IsNotFound(err):
			return c.Create(ctx, fill)
		case err != nil:
			return err
		}
		err = ErrConflict // another process has created it
	}
	if errors.Is(err, ErrConflict) && Holder(c.last) != c.Identity {
		return ErrHeld
	}
	return err
}

// Holds reads the Lease, and reports whether Identity holds it.
func (c *Claim) Holds(ctx context.Context) (bool, error) {
	err := c.Read(ctx)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && Holder(c.last) == c.Identity, err
}

// Release makes the Lease free. It replaces only the version that was last read or written.
func (c *Claim) Release(ctx context.Context) error {
	return c.Update(ctx, func(l *Lease) {
		none, seconds, now := "", int32(1), metav1.NewMicroTime(c.Clock.Stamp().Time)
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &none, &seconds
		l.Spec.AcquireTime, l.Spec.RenewTime = &now, &now
	})
}

// fill makes Identity the holder.
func (c *Claim) fill(l *Lease, now time.Time) {
	seconds, renewed := int32((c.Duration+time.Second-1)/time.Second), metav1.NewMicroTime(now)
	if Holder(l) != c.Identity {
		transitions := value(l.Spec.LeaseTransitions) + 1
		if l.UID == "" { // it is being created
			transitions = 0
		}
		l.Spec.AcquireTime, l.Spec.LeaseTransitions = &renewed, &transitions
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &c.Identity, &seconds, &renewed
	for name, text := range c.Annotations {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, name, text)
	}
}
