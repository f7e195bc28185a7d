package executor

import (
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// fence returns what asks for leave before anything is sent; nil if nobody has to be asked.
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

// allowed says why nothing may be sent for a namespace now.
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

// slotFence is the fence of the slot of a namespace; nil without shards.
func (e *Executor) slotFence(namespace string) func() error {
	if e.shards == nil {
		return nil
	}
	slot := e.slotOf(namespace)
	return fence(func() error { return e.shards.Fence(slot) })
}

// policyOf is that of requests for a namespace.
func (e *Executor) policyOf(namespace string) call.Policy {
	return fenced(e.policy, e.slotFence(namespace))
}

// clientOf returns the client for what is written of a namespace.
func (e *Executor) clientOf(namespace string, write store.WriteContext) *client.Client {
	return e.client.Bound(client.Binding{Fence: e.slotFence(namespace), Write: write})
}

// fenced is a policy under which nothing is sent without leave.
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
