package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	typedevents "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/shard"
)

// Group is one member of a group. It is safe for concurrent use.
type Group struct {
	opt    Options
	cfg    *rest.Config
	client *leasing.Client
	log    *slog.Logger
	slot   inherit.Slot // of log
	clock  leasing.Clock
	layout shard.Layout

	view         *view
	state        *state
	changes      *announcer
	fence        *fence
	participants []Participant
	coverage     coverage                           // see Cover
	objects      func() (map[string]int, shard.Set) // see Cover; nil: not known
	unready      unready                            // see Ready
	ran          atomic.Bool
	woken        chan struct{}
}

var _ shard.Membership = (*Group)(nil)

// New returns a member. It takes part while Run runs.
func New(cfg *rest.Config, o Options) (*Group, error) {
	g, err := newGroup(cfg, o, leasing.Clock{Now: time.Now, After: time.After})
	if err != nil {
		return nil, fmt.Errorf("cannot make a member of a group: %w", err)
	}
	return g, nil
}

func newGroup(cfg *rest.Config, o Options, clock leasing.Clock) (*Group, error) {
	if cfg == nil {
		return nil, errors.New("no rest.Config")
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Timeout = -1, 0
	c, err := newClient(cfg, o.Namespace, o.Renew)
	if err != nil {
		return nil, err
	}
	c.Tracer, c.Identity = tracing.Tracer(o.TracerProvider, "shard/group"), o.Member
	log, slot := inherit.Logger(o.Logger)
	log = log.With("group", o.Namespace+"/"+o.Name, "member", o.Member)
	g := &Group{
		opt: o, cfg: cfg, client: c, slot: slot, log: log, clock: clock,
		layout: equalRanges(o.Layout), coverage: coverage{Program: o.Program},
		view: newView(clock.Now), state: &state{log: log}, fence: &fence{}, woken: make(chan struct{}, 1),
	}
	g.changes = &announcer{state: g.state, log: log, onChange: o.OnChange}
	if o.Events {
		events, err := typedevents.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		g.changes.events = newEventWriter(events, &g.opt, clock, log, g.state)
	}
	return g, nil
}

// Add adds a participant. It must be called before Run. Participants gain slots in the order of Add, and lose them in
// the reverse order.
func (g *Group) Add(p Participant) { g.participants = append(g.participants, p) }

// Run takes part in the group until ctx ends. It then hands over its slots and leaves. It returns when no work on any
// slot runs any more. The error is nil, matches ErrRole, ErrNotGroup or ErrProgram, or is the panic of a participant.
// Run can be called once.
func (g *Group) Run(ctx context.Context) error {
	if g.ran.Swap(true) {
		return errors.New("cannot take part in the group again: make another member")
	}
	g.slot.From(ctx)
	defer g.client.Close()
	life, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop(ErrNotHeld)
	parts.Go(func() {
		if err := watchLeases(life, g.cfg, &g.opt, g.view, g.log, g.wake); err != nil {
			g.log.WarnContext(ctx, "the watch of the group has failed", "error", err)
		}
	})
	if g.changes.events != nil {
		parts.Go(func() { g.changes.events.run(context.WithoutCancel(ctx), life.Done()) })
	}
	m := &memberLoop{
		opt: &g.opt, layout: g.layout, clock: g.clock, log: g.log, state: g.state, announce: g.changes.announce,
		view: g.view, woken: g.woken, newTerm: g.newTerm,
		group: &groupLease{
			client: g.client, view: g.view, opt: &g.opt, layout: g.layout, clock: g.clock, setRecord: g.state.setRecord,
		},
		admit:   &admission{client: g.client, view: g.view, opt: &g.opt, own: g.coverage, seen: map[string]string{}},
		balance: &balance{opt: &g.opt, view: g.view, clock: g.clock, log: g.log},
		ready: &readiness{
			opt: &g.opt, view: g.view, clock: g.clock, own: g.coverage, unready: g.unready,
			announce: g.changes.announce, since: map[int]leasing.Stamp{},
		},
		live: &liveness{client: g.client, view: g.view, opt: &g.opt, now: g.clock.Now},
		leader: &leaderLease{
			client: g.client, identity: "shards:" + g.opt.Namespace + "/" + g.opt.Name, clock: g.clock, log: g.log,
		},
	}
	return m.run(ctx, life)
}

// newTerm returns a term without a Lease. It ends with life at the latest.
func (g *Group) newTerm(life context.Context) *term {
	t := &term{id: newID(), announce: g.changes.announce, wake: g.wake}
	t.ctx, t.end = context.WithCancelCause(life)
	t.lease = &ownLease{
		opt: &g.opt, clock: g.clock, log: g.log, view: g.view, setError: g.state.setError,
		coverage: g.coverage, client: g.client, name: leaseName(g.opt.Name, t.id), renewed: make(chan struct{}),
		renewal: leasing.Renewal{Clock: g.clock, Bound: g.opt.Renew},
	}
	t.slots = &handover{
		layout: g.layout, participants: g.participants, drain: g.opt.Drain, clock: g.clock, log: g.log, ctx: t.ctx,
		fence: g.fence, renewal: &t.lease.renewal, announce: g.changes.announce, wake: g.wake,
		failed: func(err error) {
			g.state.fail(err)
			t.fail(err)
		},
		have: map[int]*holding{}, released: g.layout.Set(),
	}
	t.lease.census = &census{
		objects: g.objects, held: t.slots.held, by: g.layout.By, now: g.clock.Now, every: censusPeriods * g.opt.period,
	}
	t.lease.ready = func() string { return g.unready.statement(t.slots.held()) }
	t.slots.moves, t.slots.cut = context.WithCancelCause(t.ctx)
	t.lease.holdings = func() *holdings {
		self := t.self.Load()
		if self == nil {
			return nil
		}
		held := t.slots.held()
		return &holdings{
			Of: g.layout.Slots, By: g.layout.By.String(), Leader: g.opt.Leader, Slots: held.String(),
			Weight: self.Weight, Coverage: self.Coverage, Bounds: encodeBounds(held.Layout(), shard.Layout{}),
		}
	}
	return t
}

// wake starts the next step of the member.
func (g *Group) wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// Layout returns the layout, with an explicit number of slots and the newest known boundaries.
func (g *Group) Layout() shard.Layout {
	s := snapshot{layout: g.layout, known: g.state.facts()}
	return s.boundaries()
}

// Held returns the slots that this member holds, including those that it is about to release.
func (g *Group) Held() shard.Set { return g.fence.permit().held(g.layout) }

// Fence returns nil while it is certain that no other member holds the slot. It reads only the clock, so it is cheap
// enough for each request. A process that is paused between Fence and its request may still send that request when
// another member holds the slot.
//
// Use FenceOf for the slot of an object, unless the slot is known to be held since its number was determined: the
// boundaries of slots that are not held may change.
func (g *Group) Fence(slot int) error { return g.fence.permit().check(slot) }

// FenceOf is [Group.Fence] for the slot of an object.
func (g *Group) FenceOf(namespace string, uid types.UID) error {
	return g.fence.permit().checkObject(namespace, uid)
}

// Cover states what this member works on, beside Options.Program. It must be called before Run. The group refuses
// members with other namespaces; none means all. Members may cover different kinds while a release is rolled out: slots
// then go to the members with the newest kinds first.
//
// objects returns the number of objects that this member holds, by namespace, and the slots that they are in. The map
// is nil while the number is not known, as long as objects of a slot are not listed. It is called for some renewals,
// from any goroutine, and must not block. The group divides the slots by it if the layout is by namespace; [Report] has
// the sum. Without it, as with nil, slots keep equal ranges of the hash.
func (g *Group) Cover(namespaces, kinds []string, objects func() (byNamespace map[string]int, of shard.Set)) {
	sorted := func(names []string) []string {
		names = slices.Clone(names)
		slices.Sort(names)
		return slices.Compact(names)
	}
	g.coverage.Namespaces, g.coverage.Kinds, g.objects = sorted(namespaces), sorted(kinds), objects
}

// Ready sets the function that returns the slots for which this member is not ready, and why. The reason is "" while it
// makes progress, such as during a long list. Ready must be called before Run. unready is called every second or so,
// from any goroutine, and must not block. Without it, a member is ready for each slot that it holds.
//
// A member that has failed to become ready for a slot for a minute gives it to a member of the same coverage that is
// ready for other slots, one slot at a time. It gains none for five minutes, and then takes one again. If no other
// member is ready, it keeps its slots.
func (g *Group) Ready(unready func() (slots shard.Set, reason string)) { g.unready = unready }
