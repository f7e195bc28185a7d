package executor

import (
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/webhook"
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
