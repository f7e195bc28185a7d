package group

import (
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
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedevents "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/inherit"
	"github.com/fairlead-io/fairlead/internal/tracing"
	"github.com/fairlead-io/fairlead/shard"
)

// maxWeight bounds Options.Weight.
const maxWeight = 1000

// Options of a member. Namespace, Name and Role are required.
type Options struct {
	Namespace, Name string
	// Role is what the members of the group do, a plain word: "reconcile", "watch". Members of another role are refused.
	Role string
	// Layout is how objects are divided. It takes effect when the last member of another one has left.
	Layout shard.Layout
	// Member is the name of this member, for people: the host's name by default. It need not be unique.
	Member string
	// Address is where others reach this member, such as "http://10.0.0.7:9090", for those who are told that it holds what
	// they ask about: see Group.Why. Its Lease shows it. "": that is not said.
	Address string
	// Weight is how much this member takes, relative to the others: 1 by default, at most 1000.
	Weight int
	// Leader is the name, in Namespace, of the Lease by which this program elects a leader where it does not share; it is
	// then held in the name of the group, "shards:Namespace/Name". "": there is none. It counts as part of the layout.
	Leader string
	// Duration is for how long others respect a member's Lease that is not renewed: 9 s. Renew is for how long a member
	// works after it has begun its last renewal: two thirds of it. It is renewed six times in Duration.
	Duration, Renew, period time.Duration
	// Drain bounds what Participant.Lose may take where a slot moves or the member leaves: 10 s.
	Drain time.Duration
	// Events has changes told by Kubernetes Events about the group's Lease, for which the member needs the right to create
	// events in the namespace. They are few: one that comes too soon after many others is not written.
	Events bool
	// OnChange is called for each change that is logged, by any goroutine. It must not block; it may ask the group.
	OnChange func(Change)
	// TracerProvider makes a span of a request about a Lease of the group that fails, or takes a second or longer; of all
	// that go well there are none. Default: none are made.
	TracerProvider trace.TracerProvider
	// Logger gets a line for each change. Default: that of the fairlead runtime that runs Run, else none.
	Logger *slog.Logger
}

// Participant works on the slots that its member holds. Its functions may be called concurrently, for different slots.
// What panics in them ends Run.
type Participant interface {
	// Gain begins to work on slots. It should return soon: what takes long it begins, and does not wait for. While it
	// returns an error it is called again, with back-off. ctx ends when the member has lost the slots.
	Gain(ctx context.Context, slots shard.Set) error
	// Lose ends the work on slots that were gained, or were to be, and returns when nothing of them runs any more: it
	// takes nothing new of them, lets what runs end, and when ctx ends, cancels that. The cause of ctx is ErrMoved after
	// Options.Drain, or ErrLost: then Fence lets nothing through already. quiet says of some of the slots that nothing
	// runs any more, so that another member has them at once; Lose need not call it. No slot is let go before Lose has
	// returned or has called quiet for it, however long that takes.
	Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set))
}

// Group is one member. It is safe for concurrent use.
type Group struct {
	opt    Options
	cfg    *rest.Config
	leases leases
	view   *view
	log    *slog.Logger
	slot   inherit.Slot // of log
	clock  clock
	layout shard.Layout

	participants []Participant
	events       *teller // nil: there are none
	ran          atomic.Bool
	woken        chan struct{}
	holds        atomic.Pointer[holds] // what Fence lets through

	mu    sync.Mutex // guards state; a leaf
	state state
}

// clock is the time of a process. Tests have processes whose clocks differ, and stand still.
type clock struct {
	now   func() time.Time
	after func(time.Duration) <-chan time.Time
}

// New returns a member that takes part while Run runs.
func New(cfg *rest.Config, o Options) (*Group, error) {
	if cfg == nil {
		return nil, errors.New("cannot make a member of a group: no rest.Config")
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("cannot make a member of a group: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // requests are few by what is done here; a renewal must not wait for others
	cfg.Timeout = 0
	c, err := typed.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot make a member of a group: %w", err)
	}
	log, slot := inherit.Logger(o.Logger)
	g := &Group{
		opt: o, cfg: cfg, slot: slot, log: log.With("group", o.Namespace+"/"+o.Name, "member", o.Member),
		leases: leases{
			client: c, namespace: o.Namespace, timeout: o.Renew / 3, member: o.Member,
			tracer: tracing.Tracer(o.TracerProvider, "shard/group"),
		},
		clock:  clock{time.Now, time.After},
		layout: shard.Layout{By: o.Layout.By, Slots: o.Layout.Len()}, woken: make(chan struct{}, 1),
	}
	g.view = newView(func() time.Time { return g.clock.now() })
	if o.Events {
		events, err := typedevents.NewForConfig(cfg)
		if err != nil {
			return nil, fmt.Errorf("cannot make a member of a group: %w", err)
		}
		g.events = &teller{g: g, client: events, changes: make(chan Change, eventsAtOnce)}
	}
	return g, nil
}

// complete checks options and fills in the defaults.
func (o *Options) complete() error {
	if o.Namespace == "" || o.Name == "" || o.Role == "" {
		return errors.New("it needs a namespace, a name and a role")
	}
	if errs := validation.IsDNS1123Label(o.Name); len(errs) > 0 { // it is the value of a label, too
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
	if o.Duration <= 0 {
		o.Duration = 9 * time.Second
	}
	if o.Renew <= 0 {
		o.Renew = o.Duration * 2 / 3
	}
	if o.period <= 0 {
		o.period = o.Duration / 6
	}
	if o.Drain <= 0 {
		o.Drain = 10 * time.Second
	}
	if o.period*2 > o.Renew || o.Renew*5/4 > o.Duration {
		return fmt.Errorf("it renews every %v, for %v, what others respect for %v: too close to each other",
			o.period, o.Renew, o.Duration)
	}
	return nil
}

// Add adds a participant; before Run. Slots are gained in the order in which participants were added, and lost in the
// reverse order.
func (g *Group) Add(p Participant) { g.participants = append(g.participants, p) }

// Layout returns how objects are divided, with its number of slots spelled out.
func (g *Group) Layout() shard.Layout { return g.layout }

// Held returns the slots that this member holds, also those that it is about to let go.
func (g *Group) Held() shard.Set {
	if h := g.holds.Load(); h != nil && h.term.fresh() {
		return h.set
	}
	return g.layout.Set()
}

// Fence says why a request for an object of a slot must not be sent; nil while it is certain that no other member holds
// the slot. It looks at the clock only, so it may be asked before every request; what was paused after it was asked is
// what may still be sent when another one holds the slot.
func (g *Group) Fence(slot int) error {
	h := g.holds.Load()
	if h == nil || !h.set.Holds(slot) {
		return ErrNotHeld
	}
	if !h.term.fresh() {
		return ErrLost
	}
	return nil
}

// Context returns a context for work on a slot, which ends when the slot is lost (ErrLost) or was let go (ErrMoved), at
// the latest when the drain bound has passed. It has ended if the slot is not held (ErrNotHeld).
func (g *Group) Context(slot int) context.Context {
	if h := g.holds.Load(); h != nil {
		if ctx, ok := h.term.context(slot); ok {
			return ctx
		}
	}
	ctx, end := context.WithCancelCause(context.Background())
	end(ErrNotHeld)
	return ctx
}

// Here says why this member does not work on a slot: a *HolderError, which names the one that does, as far as it is
// known. It is for requests from outside that reach any of the members, such as callbacks. nil: it does.
func (g *Group) Here(slot int) error {
	err := g.Fence(slot)
	if err == nil {
		return nil
	}
	e := &HolderError{Slot: slot, Err: err}
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.state.record; r != nil && slot >= 0 && slot < len(r.slots) {
		for _, m := range r.members {
			if m.ID == r.slots[slot].holder && m.ID != g.state.id {
				e.Holder = m.Name
			}
		}
	}
	return e
}

// holds are the slots of an incarnation that Fence lets through.
type holds struct {
	set  shard.Set
	term *term
}

// wake has the member look at what there is.
func (g *Group) wake() {
	select {
	case g.woken <- struct{}{}:
	default:
	}
}
