package lease

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock notes when the lease was last renewed: the time before the request was sent, which is before anybody else can have begun
// to count.
type lock struct {
	resourcelock.Interface
	won   func()       // the lease was acquired
	leave func() error // it is about to be given back; an error if it must not be

	mu      sync.Mutex
	renewed time.Time // zero: it is not held
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r, func() error { return l.Interface.Create(ctx, r) })
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r, func() error { return l.Interface.Update(ctx, r) })
}

func (l *lock) write(r resourcelock.LeaderElectionRecord, send func() error) error {
	mine := r.HolderIdentity == l.Identity()
	if !mine {
		l.lose()
		if err := l.leave(); err != nil {
			return err
		}
	}
	begun := time.Now()
	if err := send(); err != nil {
		return err
	}
	if !mine {
		return nil
	}
	l.mu.Lock()
	first := l.renewed.IsZero()
	l.renewed = begun
	l.mu.Unlock()
	if first {
		l.won()
	}
	return nil
}

func (l *lock) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = time.Time{}
}

// age returns how long ago the last renewal was begun, by whichever clock says more: the monotonic one may stand still while a machine
// sleeps, the wall clock may be set back.
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
