package executor

import (
	"context"
	"fmt"
	"sync"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

// ownership knows the namespaces on which this executor works, and fences its requests for them. It counts the work of
// a slot: the flows of its operations, parked or not, their calls, and writes of the statuses of Webhooks. Work starts
// only in a slot that is not leaving, and a slot is lost when the count is zero. It is safe for concurrent use.
type ownership struct {
	shards shard.Membership // nil: all namespaces are served here
	fence  func() error     // of the process; nil: none
	slots  *handover.Slots  // without shards: one slot
	policy call.Policy      // its Fence is that of the process
	client *client.Client   // its Fence is that of the process
	base   context.Context  //nolint:containedctx // of the work on slots; set by run before the first work
}

// newOwnership returns the ownership for a group, which may be nil. fence may be nil, too. The caller calls bind.
func newOwnership(shards shard.Membership, fence func() error, policy call.Policy) (*ownership, error) {
	layout := shard.Layout{Slots: 1}
	if shards != nil {
		if layout = shards.Layout(); layout.By != shard.Namespace {
			return nil, fmt.Errorf("operations are shared by namespace, so that those that exclude "+
				"each other are in one place: the group shares by %s", layout.By)
		}
	}
	o := &ownership{shards: shards, fence: fence, policy: fenced(policy, asFenced(fence))}
	o.slots = handover.New(layout, errMoved, func(int) context.Context { return o.base })
	return o, nil
}

// bind sets the client for writes. anyone is a client without a fence.
func (o *ownership) bind(anyone *client.Client) {
	o.client = anyone.Bound(binding.Binding{Fence: asFenced(o.fence), Reported: true})
}

// layout returns how namespaces are divided into slots.
func (o *ownership) layout() shard.Layout { return o.slots.Layout() }

// slotOf returns the slot of a namespace with work in progress.
func (o *ownership) slotOf(namespace string) int { return o.slots.SlotOf(namespace, "") }

// holds reports whether the slot of a namespace is here and not leaving. It takes no lock.
func (o *ownership) holds(namespace string) bool {
	_, held := o.slots.Find(namespace, "")
	return held
}

// isPartial reports whether this executor works on some namespaces only.
func (o *ownership) isPartial() bool { return o.shards != nil }

// enter begins a piece of work for a namespace if its slot is here. The caller must then call leave.
func (o *ownership) enter(namespace string) (t *handover.Tenure, here bool) {
	_, t, here = o.slots.EnterFor(namespace, "")
	return t, here
}

// add begins a piece of work that belongs to other work in progress. The caller must then call leave.
func (o *ownership) add(namespace string) { o.slots.Add(o.slotOf(namespace)) }

// leave ends a piece of work.
func (o *ownership) leave(namespace string) { o.slots.Leave(o.slotOf(namespace)) }

// check returns a function that returns an error while no request may be sent for a namespace. It returns nil if there
// is no fence.
func (o *ownership) check() func(namespace string) error {
	if o.shards == nil && o.fence == nil {
		return nil
	}
	return func(namespace string) error {
		if o.fence != nil {
			if err := o.fence(); err != nil {
				return err
			}
		}
		if o.shards == nil {
			return nil
		}
		return o.shards.FenceOf(namespace, "")
	}
}

// slotFence returns the fence of the slot of a namespace; nil without shards.
func (o *ownership) slotFence(namespace string) func() error {
	if o.shards == nil {
		return nil
	}
	return asFenced(func() error { return o.shards.FenceOf(namespace, "") })
}

// policyOf returns the policy of requests for a namespace.
func (o *ownership) policyOf(namespace string) call.Policy {
	return fenced(o.policy, o.slotFence(namespace))
}

// mayRequest returns an error while no request may be sent for a namespace.
func (o *ownership) mayRequest(namespace string) error {
	if fence := o.policyOf(namespace).Fence; fence != nil {
		return fence()
	}
	return nil
}

// clientOf returns the client for writes in a namespace.
func (o *ownership) clientOf(namespace string, write store.WriteContext) *client.Client {
	return o.client.Bound(binding.Binding{Fence: o.slotFence(namespace), Write: write})
}

// asFenced wraps the errors of a fence in webhook.ErrFenced. It returns nil if fence is nil.
func asFenced(fence func() error) func() error {
	if fence == nil {
		return nil
	}
	return func() error {
		if err := fence(); err != nil {
			return fmt.Errorf("%w: %w", webhook.ErrFenced, err)
		}
		return nil
	}
}

// fenced returns p with fence added after its own Fence. fence may be nil.
func fenced(p call.Policy, fence func() error) call.Policy {
	if outer := p.Fence; outer != nil && fence != nil {
		p.Fence = func() error {
			if err := outer(); err != nil {
				return err
			}
			return fence()
		}
	} else if fence != nil {
		p.Fence = fence
	}
	return p
}

// gainedSlots collects slots whose operations in the store are not started yet. It is safe for concurrent use.
type gainedSlots struct {
	added chan struct{} // holds a token while slots may have some

	mu    sync.Mutex
	slots shard.Set
}

// add adds slots.
func (g *gainedSlots) add(slots shard.Set) {
	g.mu.Lock()
	g.slots = slots.Union(g.slots)
	g.mu.Unlock()
	select {
	case g.added <- struct{}{}:
	default:
	}
}

// take removes and returns the slots.
func (g *gainedSlots) take() shard.Set {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.slots
	g.slots = shard.Set{}
	return taken
}

func (g *gainedSlots) String() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.slots.String()
}
