package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/internal/leasing"
)

// leaderDuration is the duration of the leader Lease that a group holds. It is longer than the duration that elected
// leaders use, since another member must first notice that the renewing member is dead.
const leaderDuration = time.Minute

// leader is the Lease with which the program elects a leader when it does not share. All members of the group hold it
// with one identity. Only the goroutine of Run uses it.
type leader struct {
	claim leasing.Claim
	kept  leasing.Stamp // time of our last renewal
}

// use makes name the name of the Lease.
func (f *leader) use(g *Group, name string) {
	if f.claim.Name != name {
		f.claim = leasing.Claim{
			Record:   leasing.Record{Client: g.leases, Name: name},
			Identity: "shards:" + g.opt.Namespace + "/" + g.opt.Name, Duration: leaderDuration, Clock: g.clock,
		}
	}
}

// take makes the group the holder of the Lease. It returns ErrLeader while another holder has the Lease.
func (f *leader) take(ctx context.Context, g *Group, name string) error {
	if name == "" {
		return nil
	}
	f.use(g, name)
	begun, err := f.claim.Take(ctx)
	switch {
	case err == nil:
		f.kept = begun
	case errors.Is(err, leasing.ErrHeld):
		return fmt.Errorf("cannot hold slots: %w: %s, by the Lease %s", ErrLeader, leasing.Holder(f.claim.Last()),
			g.leases.Describe(name))
	}
	return err
}

// prepareRelease returns a function that releases the Lease after a record without members is written. It reads
// the Lease before that write, so that the release conflicts if a new member has taken the Lease since.
func (f *leader) prepareRelease(ctx context.Context, g *Group, next *record) (release func(), err error) {
	if next.leader == "" || len(next.members) > 0 {
		return func() {}, nil
	}
	f.use(g, next.leader)
	held, err := f.claim.Holds(ctx)
	if err != nil {
		return nil, err
	}
	return func() {
		if !held {
			return
		}
		if err := f.claim.Release(ctx); err != nil {
			g.log.InfoContext(ctx, "the Lease of the leader is left to expire", "error", err)
		}
	}, nil
}

// renewLeader renews the leader Lease if this member is the first live member of the record. If another holder has the
// Lease, no member of the group may hold slots.
func (m *memberLoop) renewLeader() error {
	r := m.last
	recently := !m.leader.kept.IsZero() && m.leader.kept.AtMost(m.g.clock.Now()) < 2*m.g.opt.period
	if r.leader == "" || r.founded == "" || recently || !m.first(r) {
		return nil
	}
	err := m.leader.take(m.t.ctx, m.g, r.leader)
	if !errors.Is(err, ErrLeader) {
		return err
	}
	_, writeErr := m.write(m.base, r, change{abandon: true})
	m.t.fail(err)
	return errors.Join(err, writeErr)
}

// first reports whether this member is the first in the record whose Lease is renewed.
func (m *memberLoop) first(r *record) bool {
	for _, other := range r.members {
		if other.ID == m.t.id {
			return true
		}
		s, ok := m.g.view.get(m.g.leaseOf(other.ID))
		if ok && s.Unchanged(m.g.clock.Now()) < m.g.opt.Renew {
			return false
		}
	}
	return false
}
