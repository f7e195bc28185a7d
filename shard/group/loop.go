package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

// memberLoop decides what this member does next, in steps on the goroutine of Run. It has no lock.
type memberLoop struct {
	opt      *Options
	layout   shard.Layout
	clock    leasing.Clock
	log      *slog.Logger
	state    *state
	announce func(Change)
	view     *view
	group    *groupLease
	admit    *admission
	live     *liveness
	balance  *balance
	ready    *readiness
	leader   *leaderLease
	woken    <-chan struct{}                  // a change that the next step should see
	newTerm  func(life context.Context) *term // it ends with life at the latest

	t       *term         // the present incarnation
	until   time.Time     // when an orderly leave is given up; zero: not leaving
	led     leasing.Stamp // when this member has last seen to the leader Lease, or had no slots
	tries   int           // consecutive failed steps
	pause   time.Duration // before the next step
	blocked error         // why no slot may be held, although the step succeeded
}

// run takes part until ctx ends, and then leaves. life ends after ctx, and ends all work.
func (m *memberLoop) run(ctx, life context.Context) error {
	for attempt := 0; ; attempt++ {
		begun := m.clock.Now()
		t := m.newTerm(life)
		err := m.runTerm(ctx, t)
		if m.clock.Now().Sub(begun) > time.Minute {
			attempt = 0
		}
		t.close()
		if m.state.fatal() == nil { // after a panic, work may still run: the Lease must expire
			t.lease.remove(life)
		}
		if err = cmp.Or(m.state.fatal(), err); err != nil {
			m.state.end(err)
			return err
		}
		if ctx.Err() != nil {
			m.announce(Change{Kind: Left})
			return nil
		}
		m.live.addEnded(t.id)
		again := backoff.Policy{Base: 100 * time.Millisecond, Cap: 5 * time.Second}
		_ = backoff.Pause(ctx, again.Delay(attempt, rand.Float64)) // the loop checks ctx before
	}
}

// runTerm takes part as one incarnation, until it has left or lost its Lease. A non-nil error ends Run.
func (m *memberLoop) runTerm(ctx context.Context, t *term) error {
	m.t, m.tries, m.led = t, 0, m.clock.Stamp()
	m.view.setOwn("")
	m.live.forgetEnded(m.group.last)
	for t.ctx.Err() == nil {
		leaving := ctx.Err() != nil
		if leaving && m.until.IsZero() {
			m.until = m.clock.Now().Add(m.opt.Drain + m.opt.Renew)
		}
		left, err := m.step(leaving)
		if left || isRefusal(err) {
			return err
		}
		m.guardLeader()
		m.setPause(err)
		if leaving && m.clock.Now().After(m.until) && t.slots.held().IsEmpty() {
			m.log.WarnContext(ctx, "cannot leave the group: others wait for the lease", leftBehind(err)...)
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
		m.tries, m.pause = 0, m.opt.period/3
		m.state.setError("take part", nil)
		return
	case m.t.ctx.Err() != nil:
	case errors.Is(err, ErrLayout) || errors.Is(err, errRecreated) || errors.Is(err, errStopped): // the member waits
		m.tries, m.pause = 0, m.opt.period
		m.state.setError("take part", err)
		return
	case errors.Is(err, leasing.ErrConflict):
		m.tries++
		m.pause = backoff.Policy{Base: 20 * time.Millisecond, Cap: time.Second}.Delay(m.tries, rand.Float64)
	default:
		m.tries++
		m.pause = backoff.Policy{Base: 100 * time.Millisecond, Cap: m.opt.period * 2}.Delay(m.tries, rand.Float64)
		m.state.setError("take part", err)
	}
	m.group.stale = true
}

// wait waits for the next step. An observed change ends the wait early, except after a failure.
func (m *memberLoop) wait(ctx context.Context, leaving bool) {
	woken, asked := m.woken, ctx.Done()
	if m.tries > 0 {
		woken = nil
	}
	if leaving {
		asked = nil
	}
	select {
	case <-m.clock.After(m.pause):
	case <-woken:
	case <-asked:
	case <-m.t.ctx.Done():
	}
}

// step reads the group and performs the next actions. left reports that this incarnation is no longer in the group.
func (m *memberLoop) step(leaving bool) (left bool, err error) {
	t := m.t
	if leaving {
		t.slots.leave()
	}
	object, err := m.object(leaving)
	if _, seen := m.view.get(t.lease.name); !seen && t.group() != "" {
		m.checkLease() // if the group was deleted too, no other member knows this one
	}
	if err != nil || object == nil || t.ctx.Err() != nil {
		return err == nil && t.slots.held().IsEmpty(), err
	}
	r, err := m.read(object)
	if err != nil {
		return false, err
	}
	r, other := m.group.usable(r)
	c, err := m.change(object.UID, r, other, leaving)
	if err != nil || t.ctx.Err() != nil {
		return false, err
	}
	next, err := m.write(object, r, c)
	if err != nil {
		return false, err
	}
	t.enterIf(object.UID, next)
	if self := next.member(t.id); self != nil {
		t.self.Store(self)
	}
	m.live.clean(t.ctx, t.id, next)
	switch {
	case next.member(t.id) == nil && leaving:
		return t.slots.held().IsEmpty(), nil
	case other != nil:
		return false, other
	}
	m.state.joined(t.id)
	return false, m.follow(next, object.UID, leaving)
}

// change returns what this member changes in the record. It ends the term if the term has no place in the record. other
// says why this member may not join.
func (m *memberLoop) change(group types.UID, r *record, other error, leaving bool) (c change, err error) {
	t, held := m.t, m.t.slots.held()
	if other != nil && t.group() != "" {
		t.fail(other) // the Lease would keep the other members from slots
		return c, other
	}
	if other == nil {
		if err := t.slots.adopt(r.layout); err != nil {
			t.fail(err)
			return c, err
		}
	}
	c = change{from: t.id, drop: m.dead(r), release: t.slots.unrecorded(), claim: m.layout.Set()}
	switch {
	case r.member(t.id) != nil:
		t.joined = group
	case t.joined == group:
		t.fail(fmt.Errorf("%w: this member is not in it any more", errRecord))
		return c, nil
	case other == nil && !leaving:
		if c.join, err = m.join(group, r, c.drop); err != nil {
			return c, err
		}
	}
	if other == nil && !leaving {
		c.goal, c.stay = m.balance.plan(r, m.live.isFirst(t.id, r))
		c.give, c.try, c.recovered = m.ready.plan(r, t.id, held)
	}
	if leaving && (r.founded != "" || r.gives(t.id, held)) {
		c.leave = t.id
	}
	if r.founded == "" && other == nil {
		c.release = r.heldBy(t.id).Minus(held)
		if !leaving {
			c.claim = held
		}
	}
	return c, nil
}

// follow gains and loses slots as the record says, and keeps the leader Lease. While the record is not founded, this
// member keeps the slots that it holds since a former record, and gains none.
func (m *memberLoop) follow(r *record, group types.UID, leaving bool) error {
	t := m.t
	if r.founded == "" {
		if !t.slots.held().IsEmpty() && (t.founded == group || errors.Is(m.blocked, ErrLeader)) {
			t.fail(ErrLeader)
			return m.blocked
		}
		return cmp.Or(m.renewLeader(), m.blocked)
	}
	t.founded = group
	if err := t.slots.adopt(r.layout); err != nil {
		t.fail(err)
		return err
	}
	targets := r.targetsOf(t.id)
	if leaving {
		targets = m.layout.Set()
	}
	if err := t.slots.follow(r.heldBy(t.id), targets); err != nil {
		t.fail(err)
	}
	return m.renewLeader()
}

// object returns the Lease of the group. If there is none, it creates it, or returns nil if this member leaves.
func (m *memberLoop) object(leaving bool) (*lease, error) {
	object, err := m.group.get(m.t.ctx)
	switch {
	case err != nil || object != nil || leaving:
		return object, err
	}
	return m.group.create(m.t.ctx, m.live.isFresh)
}

// checkLease ends the term if its Lease was deleted. If the Lease has only lost its label, checkLease restores it.
func (m *memberLoop) checkLease() {
	switch got, err := m.t.lease.examine(m.t.ctx, m.clock.Stamp()); {
	case err == nil:
		m.view.observe(got)
	case errors.Is(err, errRevoked):
		m.t.fail(err)
	}
}

// read returns the record of the group. If members have not written it, read deletes the group. This member keeps its
// slots, and the next record adopts them. It does not if a newer version of the program has written the record.
func (m *memberLoop) read(object *lease) (*record, error) {
	self := ""
	if m.t.joined == object.UID {
		self = m.t.id
	}
	r, err := m.group.read(object, m.t.group() == object.UID, self)
	if errors.As(err, new(errFormat)) {
		m.t.fail(err)
	}
	if held := m.t.slots.held(); err == nil && r.founded == "" && sameDivision(r.layout, held.Layout()) && !r.fits(held) &&
		r.layout.Version() < held.Layout().Version() {
		err = fmt.Errorf("%w: it has former boundaries", errRecord)
	}
	if errors.Is(err, errRecord) {
		err = m.group.discard(m.t.ctx, object, err)
		m.state.setError("take part", err)
	}
	return r, err
}

// dead returns the members of the record that have certainly stopped.
func (m *memberLoop) dead(r *record) []string {
	dead, err := m.live.dead(m.t.ctx, m.t.id, r)
	if m.t.ctx.Err() == nil {
		m.state.setError("mark dead members", err)
	}
	return dead
}

// join creates the Lease of this incarnation, and returns it as a member. It fails if the other members of the record,
// without the dead ones, do not accept this one.
func (m *memberLoop) join(group types.UID, r *record, dead []string) (*member, error) {
	generation, err := m.admit.generation(m.t.ctx, r, dead)
	if err != nil {
		return nil, err
	}
	if m.t.group() == "" {
		err := m.t.begin(group)
		m.state.setError("join", err)
		if err != nil {
			m.t.fail(err) // the next incarnation has another name
			return nil, err
		}
	}
	if self := m.t.self.Load(); self != nil { // in a former record
		again := *self
		again.Leaving = false
		return &again, nil
	}
	since := m.clock.Now().UTC().Truncate(time.Second)
	return &member{ID: m.t.id, Name: m.opt.Member, Weight: m.opt.Weight, Since: since, Coverage: generation}, nil
}

// write applies a change to the record by compare-and-swap and returns the new record. Slots that no live member has
// released are assigned only while the group holds the leader Lease.
func (m *memberLoop) write(object *lease, r *record, c change) (*record, error) {
	m.blocked = nil
	next, changed := c.apply(r)
	if next.founded == "" && next.member(m.t.id) != nil && !c.abandon {
		ok, err := m.mayFound(object.UID, next)
		if err != nil {
			return nil, err
		}
		if ok {
			c.found = string(object.UID)
			next, changed = c.apply(r)
		}
	}
	if c.found != "" || c.gives(r, next) {
		switch err := m.leader.take(m.t.ctx, next.leader); {
		case errors.Is(err, ErrLeader):
			m.blocked, c.found, c.abandon = err, "", true
			next, changed = c.apply(r)
		case err != nil:
			return nil, err
		}
	}
	if !changed && m.group.labeled(object) {
		return r, nil
	}
	release, err := m.leader.prepareRelease(m.t.ctx, next)
	if err != nil {
		return nil, err
	}
	if err := m.group.write(m.t.ctx, object, next); err != nil {
		return nil, err
	}
	m.announceWrite(r, next, c)
	release()
	return next, nil
}

// announceWrite announces the effects of a change by this member.
func (m *memberLoop) announceWrite(before, after *record, c change) {
	m.balance.announce(before, after)
	if c.join != nil && after.member(c.join.ID) != nil {
		m.announce(Change{Kind: Joined})
	}
	for _, id := range c.drop {
		if was := before.member(id); was != nil && !m.live.hasEnded(id) {
			m.announce(Change{Kind: Died, Member: was.Name, Slots: before.heldBy(id)})
		}
	}
	if !c.release.IsEmpty() {
		m.announce(Change{Kind: Released, Slots: c.release})
	}
}

// mayFound reports whether free slots may be given in this incarnation of the group Lease. There must be no Lease of a
// stranger; see liveness.strangers. If there was another incarnation, the member also waits for the duration of a
// Lease. The deletion of the group may have included Leases of members that have not noticed yet.
func (m *memberLoop) mayFound(group types.UID, r *record) (bool, error) {
	all, err := m.group.list(m.t.ctx)
	if err != nil {
		return false, err
	}
	some, gone := m.live.strangers(all, r, group)
	if gone || len(m.live.foreign) > 0 && m.group.recreated.IsZero() {
		m.group.setRecreated()
	}
	if m.group.recreatedRecently() {
		m.blocked = errRecreated
		return false, nil
	}
	return !some, nil
}

// renewLeader renews the leader Lease if this member is the first live member of the record. If another holder has the
// Lease, no member of the group may hold slots.
func (m *memberLoop) renewLeader() error {
	r := m.group.last
	if r.leader == "" || r.free() || m.leader.takenWithin(2*m.opt.period) || !m.live.isFirst(m.t.id, r) {
		m.led = m.clock.Stamp()
		return nil
	}
	err := m.leader.take(m.t.ctx, r.leader)
	if err == nil {
		m.led = m.clock.Stamp()
	}
	if !errors.Is(err, ErrLeader) {
		return err
	}
	_, writeErr := m.write(m.group.base, r, change{abandon: true})
	m.t.fail(err)
	return errors.Join(err, writeErr)
}

// guardLeader ends the term if this member cannot see to the leader Lease. The Lease might expire: other members may
// leave its renewal to this one, or be in the same position.
func (m *memberLoop) guardLeader() {
	now := m.clock.Stamp()
	switch {
	case m.opt.Leader == "" || m.t.slots.held().IsEmpty():
		m.led = now
	case m.led.AtMost(now.Time) > leaderDuration/2:
		m.t.fail(errors.New("the leader Lease may expire: this member cannot read or write the group"))
	}
}
