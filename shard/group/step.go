package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/leasing"
)

// Run takes part in the group until ctx ends. It then hands over its slots and leaves. It returns when no work on any
// slot runs any more. The error is nil, matches ErrRole or ErrNotGroup, or is the panic of a participant. Run can be
// called once.
func (g *Group) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return errors.New("cannot take part in the group again: make another member")
	}
	g.slot.From(ctx)
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop(ErrNotHeld)
	parts.Go(func() {
		if err := g.follow(life); err != nil {
			g.log.WarnContext(ctx, "the watch of the group has failed", "error", err)
		}
	})
	if g.events != nil {
		parts.Go(func() { g.events.run(context.WithoutCancel(ctx), life.Done()) })
	}
	m := &memberLoop{g: g}
	for attempt := 0; ; attempt++ {
		begun := g.clock.Now()
		t := g.newTerm(life)
		err := m.runTerm(ctx, t)
		if g.clock.Now().Sub(begun) > time.Minute {
			attempt = 0
		}
		t.close(life)
		if err = cmp.Or(g.fatal(), err); err != nil {
			g.publish(func(s *state) { s.err = err })
			return err
		}
		if ctx.Err() != nil {
			g.note(Change{Kind: Left})
			return nil
		}
		m.dead = append(m.dead, t.id)
		again := backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
		_ = backoff.Pause(ctx, again.Delay(attempt, rand.Float64)) // the loop checks ctx before
	}
}

// memberLoop makes the decisions of a member, in steps on the goroutine of Run.
type memberLoop struct {
	g    *Group
	t    *term
	dead []string // earlier incarnations of this member, which have ended

	leader    leader
	reread    bool          // the last known group Lease may be out of date
	listed    time.Time     // time of the last list of all Leases
	uid       types.UID     // uid of the group Lease that was last read
	last      *record       // the record in it
	base      *lease        // the Lease that has it
	until     time.Time     // when an orderly leave is given up; zero: not leaving
	tries     int           // consecutive failed steps
	pause     time.Duration // before the next step
	blocked   error         // why no slot may be held, although the step succeeded
	recreated leasing.Stamp // when a new incarnation of the group Lease was read
}

// runTerm takes part as one incarnation, until it has left or lost its Lease. A non-nil error ends Run.
func (m *memberLoop) runTerm(ctx context.Context, t *term) error {
	m.t, m.tries = t, 0
	m.g.view.ownIs("")
	m.dead = slices.DeleteFunc(m.dead, func(id string) bool {
		_, seen := m.g.view.get(m.g.leaseOf(id))
		return !seen && (m.last == nil || m.last.member(id) == nil)
	})
	for t.ctx.Err() == nil {
		leaving := ctx.Err() != nil
		if leaving && m.until.IsZero() {
			m.until = m.g.clock.Now().Add(m.g.opt.Drain + m.g.opt.Renew)
		}
		left, err := m.step(leaving)
		if left || errors.Is(err, ErrRole) || errors.Is(err, ErrNotGroup) {
			return err
		}
		m.setPause(err)
		if leaving && m.g.clock.Now().After(m.until) && t.held().IsEmpty() {
			m.g.log.WarnContext(ctx, "cannot leave the group: others wait for the lease", leftBehind(err)...)
			return nil
		}
		m.wait(ctx, leaving)
	}
	return nil
}

// setPause records the result of a step, and the maximum wait before the next one.
func (m *memberLoop) setPause(err error) {
	switch {
	case err == nil:
		m.tries, m.pause = 0, m.g.opt.period/3
		m.g.setError("take part", nil)
		return
	case m.t.ctx.Err() != nil:
	case errors.Is(err, ErrLayout) || errors.Is(err, errRecreated): // not failures: the member waits
		m.tries, m.pause = 0, m.g.opt.period
		m.g.setError("take part", err)
		return
	case errors.Is(err, leasing.ErrConflict):
		m.tries++
		m.pause = backoff.Policy{Base: 20 * time.Millisecond, Cap: time.Second}.Delay(m.tries, rand.Float64)
	default:
		m.tries++
		m.pause = backoff.Policy{Base: 100 * time.Millisecond, Cap: m.g.opt.period * 2}.Delay(m.tries, rand.Float64)
		m.g.setError("take part", err)
	}
	m.reread = true
}

// wait waits for the next step. An observed change ends the wait early, except after a failure.
func (m *memberLoop) wait(ctx context.Context, leaving bool) {
	woken, asked := m.g.woken, ctx.Done()
	if m.tries > 0 {
		woken = nil
	}
	if leaving {
		asked = nil
	}
	select {
	case <-m.g.clock.After(m.pause):
	case <-woken:
	case <-asked:
	case <-m.t.ctx.Done():
	}
}

// step reads the group and performs the next actions. left reports that this incarnation is no longer in the group.
func (m *memberLoop) step(leaving bool) (left bool, err error) {
	t := m.t
	if leaving {
		t.lose(t.held())
	}
	object, err := m.object(leaving)
	if err != nil || object == nil {
		return err == nil, err
	}
	r, err := m.read(object)
	if err != nil {
		return false, err
	}
	r, other := m.replaced(r)
	c := change{from: t.id, drop: append(m.deadMembers(r), m.dead...), release: t.letGone()}
	switch joined := r.member(t.id) != nil; {
	case joined:
		t.joined = true
	case t.joined:
		t.fail(fmt.Errorf("%w: this member is not in it any more", errRecord))
		return false, nil
	case other == nil && !leaving:
		if c.join, err = m.join(object.UID); err != nil {
			return false, err
		}
	}
	if leaving {
		c.leave = t.id
	}
	next, err := m.write(object, r, c)
	if err != nil {
		return false, err
	}
	m.clean(next)
	switch {
	case next.member(t.id) == nil && leaving:
		return true, nil
	case other != nil:
		return false, other
	}
	m.g.publish(func(s *state) { s.id = t.id })
	if next.founded == "" {
		if !t.held().IsEmpty() || !next.heldBy(t.id).IsEmpty() {
			t.fail(ErrLeader)
		}
		return false, m.blocked
	}
	t.follow(next, leaving)
	return false, m.renewLeader()
}

// object returns the Lease of the group. If there is none, it creates it, or returns nil if this member leaves.
func (m *memberLoop) object(leaving bool) (*lease, error) {
	g := m.g
	if now := g.clock.Now(); g.view.lags() && now.Sub(m.listed) >= g.opt.period {
		m.listed = now
		all, err := g.leases.List(m.t.ctx, Label, g.opt.Name)
		if err != nil {
			return nil, err
		}
		g.view.listed(all)
	}
	if s, ok := g.view.get(g.opt.Name); ok && !m.reread {
		return s.Lease(), nil
	}
	got, err := g.leases.Get(m.t.ctx, g.opt.Name)
	switch {
	case err == nil:
	case !apierrors.IsNotFound(err):
		return nil, err
	default:
		g.view.setAbsent(g.opt.Name, "")
		if m.t.group != "" {
			m.t.fail(errors.New("the group was deleted"))
			return nil, nil
		}
		if leaving {
			return nil, nil
		}
		if got, err = g.leases.Create(m.t.ctx, m.created()); err != nil {
			return nil, err
		}
	}
	m.reread = false
	g.view.saw(got)
	if s, ok := g.view.get(g.opt.Name); ok {
		got = s.Lease() // it may be newer
	}
	return got, nil
}

// created returns a group Lease without members.
func (m *memberLoop) created() *lease {
	g := m.g
	l := &lease{ObjectMeta: metav1.ObjectMeta{Name: g.opt.Name, Namespace: g.opt.Namespace}}
	metav1.SetMetaDataLabel(&l.ObjectMeta, Label, g.opt.Name)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, roleAnnotation, g.opt.Role)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, recordAnnotation, fresh(g.layout, g.opt.Leader).encode())
	return l
}

// read returns the record of the group. If members have not written it, read ends the term and deletes the group. The
// group is created again when all holders of its slots have noticed.
func (m *memberLoop) read(object *lease) (*record, error) {
	known := m.t.group != "" && object.UID == m.t.group
	if m.t.group != "" && !known {
		m.t.fail(errors.New("the group was recreated"))
		return nil, leasing.ErrConflict
	}
	name := fmt.Sprintf("%s/%s", m.g.opt.Namespace, m.g.opt.Name)
	role := object.Annotations[roleAnnotation]
	switch {
	case role == m.g.opt.Role || known:
	case role == "":
		return nil, fmt.Errorf("cannot take part in the group %s: %w", name, ErrNotGroup)
	default:
		return nil, fmt.Errorf("cannot take part in the group %s as %q: %w: %q", name, m.g.opt.Role, ErrRole, role)
	}
	r, err := decode(object.Annotations[recordAnnotation])
	switch {
	case err == nil && role != m.g.opt.Role:
		err = fmt.Errorf("%w: its role is %q", errRecord, role)
	case err == nil && r.founded != "" && r.founded != string(object.UID):
		err = fmt.Errorf("%w: it is a copy of that of another object", errRecord)
	case err == nil && m.uid == object.UID && (r.rev < m.last.rev || r.rev == m.last.rev && r.sum != m.last.sum):
		err = fmt.Errorf("%w: it is at %d, and was at %d", errRecord, r.rev, m.last.rev)
	case err == nil:
		if m.uid != "" && m.uid != object.UID {
			m.recreated = m.g.clock.Stamp()
		}
		m.uid, m.last, m.base = object.UID, r, object
		m.g.publish(func(s *state) { s.record = r })
		return r, nil
	}
	m.t.fail(err)
	if !errors.As(err, new(errFormat)) {
		life, cancel := context.WithTimeout(context.WithoutCancel(m.t.ctx), m.g.opt.Renew/3) // the term has just ended
		defer cancel()
		err = errors.Join(err, m.g.leases.Delete(life, object.Name, object.UID, object.ResourceVersion))
	}
	m.g.setError("take part", err)
	return nil, err
}

// replaced returns r, or a new record if r has another layout and no members. If r has members, it returns an error
// that says why this member cannot join.
func (m *memberLoop) replaced(r *record) (*record, error) {
	if r.layout == m.g.layout && r.leader == m.g.opt.Leader {
		return r, nil
	}
	if len(r.members) > 0 {
		return r, fmt.Errorf("cannot join the group yet: %w: %d members share %d slots by %s, led by %q", ErrLayout,
			len(r.members), len(r.slots), r.layout.By, r.leader)
	}
	n := fresh(m.g.layout, m.g.opt.Leader)
	n.rev = r.rev
	return n, nil
}

// join creates the Lease of this incarnation, and returns it as a member.
func (m *memberLoop) join(group types.UID) (*member, error) {
	if m.t.group == "" {
		err := m.t.begin(m.t.ctx, group)
		m.g.setError("join", err)
		if err != nil {
			m.t.fail(err) // the next incarnation has another name
			return nil, err
		}
	}
	since := m.g.clock.Now().UTC().Truncate(time.Second)
	return &member{ID: m.t.id, Name: m.g.opt.Member, Weight: m.g.opt.Weight, Since: since}, nil
}

// write applies a change to the record by compare-and-swap and returns the new record. Slots that no live member has
// released are assigned only while the group holds the leader Lease.
func (m *memberLoop) write(object *lease, r *record, c change) (*record, error) {
	m.blocked = nil
	next, changed := c.apply(r)
	if next.founded == "" && next.free() && next.member(m.t.id) != nil && !c.abandon {
		ok, err := m.mayFound(object.UID, next)
		if err != nil {
			return nil, err
		}
		if ok {
			c.found = string(object.UID)
			next, changed = c.apply(r)
		}
	}
	if c.gives(r, next) {
		switch err := m.leader.take(m.t.ctx, m.g, next.leader); {
		case errors.Is(err, ErrLeader):
			m.blocked, c.found, c.abandon = err, "", true
			next, changed = c.apply(r)
		case err != nil:
			return nil, err
		}
	}
	if !changed && object.Labels[Label] == m.g.opt.Name {
		return r, nil
	}
	release, err := m.leader.prepareRelease(m.t.ctx, m.g, next)
	if err != nil {
		return nil, err
	}
	o := object.DeepCopy()
	metav1.SetMetaDataLabel(&o.ObjectMeta, Label, m.g.opt.Name)
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, recordAnnotation, next.encode())
	got, err := m.g.leases.Update(m.t.ctx, o)
	if err != nil {
		return nil, err
	}
	m.g.view.saw(got)
	m.uid, m.last, m.base = got.UID, next, got
	m.g.publish(func(s *state) { s.record = next })
	m.emitChanges(r, next, c)
	release()
	return next, nil
}

// emitChanges reports the effects of a change by this member.
func (m *memberLoop) emitChanges(before, after *record, c change) {
	if c.join != nil && after.member(c.join.ID) != nil {
		m.g.note(Change{Kind: Joined})
	}
	for _, id := range c.drop {
		if was := before.member(id); was != nil && !slices.Contains(m.dead, id) {
			m.g.note(Change{Kind: Died, Member: was.Name, Slots: before.heldBy(id)})
		}
	}
	if !c.release.IsEmpty() {
		m.g.note(Change{Kind: Released, Slots: c.release})
	}
}

// mayFound reports whether slots may be held in this incarnation of the group Lease. There must be no Lease of a
// member of another incarnation, or of a member that the record does not contain. If this member knew another
// incarnation, it also waits for the duration of a Lease. The deletion of the group may have included Leases of members
// that have not noticed yet.
func (m *memberLoop) mayFound(group types.UID, r *record) (bool, error) {
	all, err := m.g.leases.List(m.t.ctx, Label, m.g.opt.Name)
	if err != nil {
		return false, err
	}
	m.g.view.listed(all)
	if !m.recreated.IsZero() && m.recreated.AtLeast(m.g.clock.Now()) < m.g.opt.Duration {
		m.blocked = errRecreated
		return false, nil
	}
	for _, l := range all.Items {
		id, ok := strings.CutPrefix(l.Name, m.g.opt.Name+"-")
		if !ok || l.Annotations[deadAnnotation] != "" || slices.Contains(m.dead, id) {
			continue
		}
		if r.member(id) == nil || l.Annotations[groupAnnotation] != string(group) {
			return false, nil
		}
	}
	return true, nil
}
