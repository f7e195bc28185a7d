package executor

import (
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// fence wraps the errors of leave in webhook.ErrFenced. It returns nil if leave is nil.
func fence(leave func() error) func() error {
	if leave == nil {
		return nil
	}
	return func() error {
		if err := leave(); err != nil {
			return fmt.Errorf("%w: %w", webhook.ErrFenced, err)
		}
		return nil
	}
}

// allowed returns a function that returns an error while no request may be sent for a namespace. It returns nil if
// there is no fence.
func (e *Executor) allowed(leave func() error) func(namespace string) error {
	if e.shards == nil && leave == nil {
		return nil
	}
	return func(namespace string) error {
		if leave != nil {
			if err := leave(); err != nil {
				return err
			}
		}
		if e.shards == nil {
			return nil
		}
		return e.shards.Fence(e.slotOf(namespace))
	}
}

// slotFence returns the fence of the slot of a namespace; nil without shards.
func (e *Executor) slotFence(namespace string) func() error {
	if e.shards == nil {
		return nil
	}
	slot := e.slotOf(namespace)
	return fence(func() error { return e.shards.Fence(slot) })
}

// policyOf returns the policy of requests for a namespace.
func (e *Executor) policyOf(namespace string) call.Policy {
	return fenced(e.policy, e.slotFence(namespace))
}

// clientOf returns the client for writes in a namespace.
func (e *Executor) clientOf(namespace string, write store.WriteContext) *client.Client {
	return e.client.Bound(binding.Binding{Fence: e.slotFence(namespace), Write: write})
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
