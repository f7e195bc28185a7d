package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation"
	typedevents "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/shard"
)

// maxWeight bounds Options.Weight.
const maxWeight = 1000

// maxDuration bounds Options.Duration, and how long an edit by hand of another member's Lease can delay its takeover.
const maxDuration = time.Minute

// Options configures a member. Namespace, Name and Role are required.
type Options struct {
	Namespace, Name string
	// Role is the purpose of the group in one word, such as "reconcile" or "watch". A member with another role is refused.
	Role string
	// Layout is how objects are divided. It takes effect when the last member with another layout has left.
	Layout shard.Layout
	// Member is the name of this member for people; the default is the host name. It need not be unique.
	Member string
	// Address is where others reach this member, such as "http://10.0.0.7:9090". Its Lease contains the address, and
	// [Group.Why] of the other members shows it. If empty, the Lease has none.
	Address string
	// Program identifies the program. The group refuses members of another program; see [Group.Cover]. If empty, the
	// member states neither program nor namespaces nor kinds, and every group accepts it.
	Program string
	// Weight is the share of this member, relative to the others; the default is 1 and the maximum 1000.
	Weight int
	// Leader is the name, in Namespace, of the Lease with which this program elects a leader when it does not share. The
	// group then holds it as "shards:Namespace/Name". If empty, there is no such Lease. Leader counts as part of the
	// layout.
	Leader string
	// Duration is how long other members respect a Lease without a renewal; the default is 15 s and the maximum one
	// minute. A member respects the Lease of another one for the longer of its own Duration and that of the Lease. Renew
	// is how long a member works after it sent its last successful renewal; the default is 8/15 of Duration. A member
	// sends a renewal every 2/15 of Duration, even if earlier ones have no response yet.
	//
	// The default of Renew, 8 s, is less than the 9 s for which members of the former release respect every Lease. They
	// may therefore be in the group during a roll-out. Responses may take Renew less one interval, 6 s.
	Duration, Renew, period time.Duration
	// Drain bounds [Participant].Lose when a slot moves or the member leaves; the default is 10 s.
	Drain time.Duration
	// Events enables Kubernetes Events about the Lease of the group. The member then needs permission to create events in
	// the namespace. Their rate is limited, and excess Events are dropped.
	Events bool
	// OnChange is called for each change that is logged, from any goroutine. It must not block. It may call the methods of
	// the Group.
	OnChange func(Change)
	// TracerProvider is for spans of the requests about the Leases of the group. Only failed requests and those of at
	// least a second have spans. By default there are none.
	TracerProvider trace.TracerProvider
	// Logger logs each change. The default is that of the fairlead runtime that runs Run, or none.
	Logger *slog.Logger
}

// Participant works on the slots of its member. Its methods may be called concurrently, for different slots. A panic in
// them ends Run.
type Participant interface {
	// Gain begins to work on slots. It should return soon, and start long work in the background. If it returns an error,
	// it is called again with back-off. ctx ends when the member has lost the slots.
	Gain(ctx context.Context, slots shard.Set) error
	// Lose ends the work on slots for which Gain was called or was about to be called. It starts no new work on them,
	// waits for the running work, and cancels that when ctx ends. Lose returns when no work on the slots runs any more.
	// The cause of ctx is ErrMoved after Options.Drain. It is ErrLost if Fence already refuses the slots.
	//
	// quiet reports that no work runs any more on some of the slots, so that another member gets them at once. Lose need
	// not call it. The member keeps a slot until Lose has returned or has called quiet for it, without a time limit.
	Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set))
}

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
	coverage     coverage   // see Cover
	load         func() int // nil: not known
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
		layout: shard.Layout{By: o.Layout.By, Slots: o.Layout.Len()}, coverage: coverage{Program: o.Program},
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

// complete checks the options and sets the defaults.
func (o *Options) complete() error {
	if o.Namespace == "" || o.Name == "" || o.Role == "" {
		return errors.New("it needs a namespace, a name and a role")
	}
	if errs := validation.IsDNS1123Label(o.Name); len(errs) > 0 { // it is also a label value
		return fmt.Errorf("its name is %q: %s", o.Name, strings.Join(errs, ", "))
	}
	if o.Leader == o.Name {
		return errors.New("the Lease of the leader has the name of the group")
	}
	if err := o.Layout.Check(); err != nil {
		return err
	}
	if o.Weight == 0 {
		o.Weight = 1
	}
	if o.Weight < 0 || o.Weight > maxWeight {
		return fmt.Errorf("it has weight %d: want at most %d", o.Weight, maxWeight)
	}
	if o.Member == "" {
		o.Member, _ = os.Hostname()
	}
	o.Duration = cmp.Or(max(o.Duration, 0), 15*time.Second)
	o.Renew = cmp.Or(max(o.Renew, 0), o.Duration*8/15)
	o.period = cmp.Or(max(o.period, 0), o.Duration*2/15)
	o.Drain = cmp.Or(max(o.Drain, 0), 10*time.Second)
	if o.Duration > maxDuration {
		return fmt.Errorf("its lease duration is %v: want at most %v", o.Duration, maxDuration)
	}
	if o.period*2 > o.Renew || o.Renew*5/4 > o.Duration {
		return fmt.Errorf(
			"the renew interval %v, the renew deadline %v and the lease duration %v are too close to each other",
			o.period, o.Renew, o.Duration)
	}
	return nil
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
		admit: &admission{client: g.client, view: g.view, opt: &g.opt, own: g.coverage, seen: map[string]string{}},
		live:  &liveness{client: g.client, view: g.view, opt: &g.opt, now: g.clock.Now},
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
		coverage: g.coverage, load: g.load, client: g.client, name: leaseName(g.opt.Name, t.id), renewed: make(chan struct{}),
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
	return t
}

// wake starts the next step of the member.
func (g *Group) wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}

// Layout returns the layout, with an explicit number of slots.
func (g *Group) Layout() shard.Layout { return g.layout }

// Held returns the slots that this member holds, including those that it is about to release.
func (g *Group) Held() shard.Set { return g.fence.permit().held(g.layout) }

// Fence returns nil while it is certain that no other member holds the slot. It reads only the clock, so it is cheap
// enough for each request. A process that is paused between Fence and its request may still send that request when
// another member holds the slot.
func (g *Group) Fence(slot int) error { return g.fence.permit().check(slot) }
