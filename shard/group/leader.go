package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaderSeconds is for how long others respect the Lease of the leader that a group holds. It is longer than what
// elected leaders write, since another member has to notice that the one that renewed it is dead.
const leaderSeconds = 60

// leader is the Lease by which the program elects a leader where it does not share. It is of the goroutine of Run.
type leader struct {
	version string // that was seen last, of a holder that is not the group
	since   stamp  // since when
	kept    stamp  // when we have renewed it last
}

// holderOf is the holder of a leader's Lease that a group has.
func (g *Group) holderOf() string { return "shards:" + g.opt.Namespace + "/" + g.opt.Name }

// take has the group hold the Lease from now on. The error is ErrLeader while somebody else does: until that one gives
// it back, or has not renewed it for as long as it says, by our elapsed time. It writes each time, so that who was
// about to give it back, since nobody else was there, does not.
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

// busy is ErrLeader while somebody else holds the Lease.
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

// last returns what gives the Lease back, to be called once a record without members is written. It reads the Lease
// before that, so that it cannot take it from a member that comes after it.
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

// lead renews the Lease of the leader, if this is the first member of the record that lives. When somebody else has it
// nobody of the group may hold slots.
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

// first says whether this is the first member of a record whose Lease is renewed.
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
