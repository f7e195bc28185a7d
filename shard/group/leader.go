package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaderSeconds is the duration of the leader Lease that a group holds. It is longer than the duration that elected
// leaders use, since another member must first notice that the renewing member is dead.
const leaderSeconds = 60

// leader is the Lease with which the program elects a leader when it does not share. Only the goroutine of Run uses it.
type leader struct {
	version string // last version seen of another holder
	since   stamp  // since when that version was seen
	kept    stamp  // time of our last renewal
}

// holderOf returns the holder identity that a group writes into the leader Lease.
func (g *Group) holderOf() string { return "shards:" + g.opt.Namespace + "/" + g.opt.Name }

// take makes the group the holder of the Lease. It returns ErrLeader while another holder has the Lease. The Lease
// becomes free when that holder releases it, or has not renewed it for its duration, by our elapsed time. It always
// writes, so that a concurrent release by the last member conflicts.
func (f *leader) take(ctx context.Context, g *Group, name string) error {
	if name == "" {
		return nil
	}
	l, err := g.leases.get(ctx, name)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return err
	}
	begun := stamp{g.clock.now()}
	if absent {
		l = &lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: g.opt.Namespace}}
	} else if err := f.busy(l, g, begun); err != nil {
		return err
	}
	g.fillLeader(l, begun.Time)
	if absent {
		_, err = g.leases.create(ctx, l)
	} else {
		_, err = g.leases.put(ctx, l)
	}
	if err == nil {
		f.kept = begun
	}
	return err
}

// busy returns ErrLeader while another holder has the Lease.
func (f *leader) busy(l *lease, g *Group, now stamp) error {
	holder := value(l.Spec.HolderIdentity)
	if holder == "" || holder == g.holderOf() {
		return nil
	}
	if f.version != l.ResourceVersion {
		f.version, f.since = l.ResourceVersion, now
	}
	seconds := value(l.Spec.LeaseDurationSeconds)
	if seconds <= 0 {
		seconds = leaderSeconds
	}
	if f.since.atLeast(now.Time) >= time.Duration(seconds)*time.Second {
		return nil
	}
	return fmt.Errorf("cannot hold slots: %w: %s, by the Lease %s/%s", ErrLeader, holder, l.Namespace, l.Name)
}

func (g *Group) fillLeader(l *lease, now time.Time) {
	holder, seconds, renewed := g.holderOf(), int32(leaderSeconds), metav1.NewMicroTime(now)
	if value(l.Spec.HolderIdentity) != holder {
		transitions := value(l.Spec.LeaseTransitions) + 1
		l.Spec.AcquireTime, l.Spec.LeaseTransitions = &renewed, &transitions
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &holder, &seconds, &renewed
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// last returns a function that releases the Lease, for use after a record without members is written. It reads the
// Lease before that write, so that the release conflicts if a new member has taken the Lease since.
func (f *leader) last(ctx context.Context, g *Group, next *record) (giveBack func(), err error) {
	if next.leader == "" || len(next.members) > 0 {
		return func() {}, nil
	}
	l, err := g.leases.get(ctx, next.leader)
	if apierrors.IsNotFound(err) || err == nil && value(l.Spec.HolderIdentity) != g.holderOf() {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	return func() {
		nobody, seconds := "", int32(1)
		l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = &nobody, &seconds
		if _, err := g.leases.put(ctx, l); err != nil {
			g.log.InfoContext(ctx, "the Lease of the leader is left to expire", "error", err)
		}
	}, nil
}

// lead renews the leader Lease if this member is the first live member of the record. If another holder has the Lease,
// no member of the group may hold slots.
func (m *mind) lead() error {
	r := m.last
	recently := !m.leader.kept.IsZero() && m.leader.kept.atMost(m.g.clock.now()) < 2*m.g.opt.period
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
func (m *mind) first(r *record) bool {
	for _, other := range r.members {
		if other.ID == m.t.id {
			return true
		}
		s, ok := m.g.view.get(m.g.leaseOf(other.ID))
		if ok && s.since.atLeast(m.g.clock.now()) < m.g.opt.Renew {
			return false
		}
	}
	return false
}
