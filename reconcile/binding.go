package reconcile

import (
	"context"

	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// bindings bind requests to the right to work: that of a leader, or of the holder of a slot. They have no state.
type bindings struct {
	owner      string           // of the writes, in the ledgers of the stores
	leader     Leadership       // nil: every process may work
	shards     shard.Membership // nil: replicas do not share the objects
	preempt    bool             // a newer event may preempt a reconciliation
	finalizer  string           // for package alloc; "" if there is none
	controller string
}

// fence returns a function that returns an error if no request may be sent for an object of a slot, in a term. It
// returns nil if there is no leadership and no sharding.
func (b *bindings) fence(term context.Context, slot int) func() error {
	switch {
	case b.leader != nil && term != nil:
		return func() error { return b.leader.Fence(term) }
	case b.shards != nil:
		return func() error { return b.shards.Fence(slot) }
	}
	return nil
}

// ofCall returns the client binding of a reconciliation: it may write in its term, until it is stopped.
func (b *bindings) ofCall(r *reconciliation) binding.Binding {
	fence, outer := r.fence, b.fence(r.term, r.slot)
	if outer != nil {
		fence = func() error {
			if err := r.fence(); err != nil {
				return err
			}
			return outer()
		}
	}
	return binding.Binding{
		Fence: fence, RequireVersion: outer != nil || b.preempt,
		Waiting: &r.waiting, Reported: true, Write: store.WriteContext{Owner: b.owner, Primary: r.key},
	}
}

// userContext returns the context for the user's code, with the Info and the client binding.
func (b *bindings) userContext(ctx context.Context, r *reconciliation, own binding.Binding) context.Context {
	info := Info{
		Controller: b.controller, Key: r.key, Reasons: r.why.list, Dropped: r.why.dropped, Attempt: r.attempt,
		LastError: r.last, Finalizer: b.finalizer,
	}
	if b.finalizer != "" {
		ctx = alloc.WithFinalizer(ctx, b.finalizer)
	}
	return binding.With(context.WithValue(ctx, infoKey{}, info), own)
}

// ofFiber returns the context values for the steps of a fiber. ctx is the context of the reconciliation that starts it,
// in term, which may be nil. The fiber outlives both.
func (b *bindings) ofFiber(ctx, term context.Context, k Key, slot int, waiting *binding.Waiting) context.Context {
	values := context.WithoutCancel(ctx)
	if term != nil {
		values = context.WithoutCancel(term)
	}
	values = withoutSpan(values)
	if b.finalizer != "" {
		values = alloc.WithFinalizer(values, b.finalizer)
	}
	return binding.With(values, binding.Binding{
		Fence: b.fence(term, slot), RequireVersion: true, Waiting: waiting,
		Write: store.WriteContext{Owner: b.owner, Primary: k},
	})
}
