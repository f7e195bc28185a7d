package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// leaderDuration is the duration of the leader Lease that a group holds. It is longer than the duration that elected
// leaders use, since another member must first notice that the renewing member is dead.
const leaderDuration = time.Minute

// leaderLease is the Lease with which the program elects a leader when it does not share. All members of the group hold
// it with one identity. Only the goroutine of Run uses it.
type leaderLease struct {
	client   *leasing.Client
	identity string // of all members
	clock    leasing.Clock
	log      *slog.Logger

	claim leasing.Claim
	kept  leasing.Stamp // time of our last renewal
}

// use makes name the name of the Lease.
func (f *leaderLease) use(name string) {
	if f.claim.Name != name {
		f.claim = leasing.Claim{
			Record: leasing.Record{Client: f.client, Name: name}, Identity: f.identity, Duration: leaderDuration,
			Clock: f.clock,
		}
	}
}

// take makes the group the holder of the Lease. It returns ErrLeader while another holder has the Lease.
func (f *leaderLease) take(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	f.use(name)
	begun, err := f.claim.Take(ctx)
	switch {
	case err == nil:
		f.kept = begun
	case errors.Is(err, leasing.ErrHeld):
		return fmt.Errorf("cannot hold slots: %w: %s, by the Lease %s", ErrLeader, leasing.Holder(f.claim.Last()),
			f.client.Describe(name))
	}
	return err
}

// takenWithin reports whether this member took the Lease less than d ago.
func (f *leaderLease) takenWithin(d time.Duration) bool {
	return !f.kept.IsZero() && f.kept.AtMost(f.clock.Now()) < d
}

// prepareRelease returns a function that releases the Lease after a record without members is written. It reads
// the Lease before that write, so that the release conflicts if a new member has taken the Lease since.
func (f *leaderLease) prepareRelease(ctx context.Context, next *record) (release func(), err error) {
	if next.leader == "" || len(next.members) > 0 {
		return func() {}, nil
	}
	f.use(next.leader)
	held, err := f.claim.Holds(ctx)
	if err != nil {
		return nil, err
	}
	return func() {
		if !held {
			return
		}
		if err := f.claim.Release(ctx); err != nil {
			f.log.InfoContext(ctx, "the Lease of the leader is left to expire", "error", err)
		}
	}, nil
}
