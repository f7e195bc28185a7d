package executor

import (
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/webhook"
)

// fenced is a policy under which nothing is sent without leave.
func fenced(p call.Policy, fence func() error) call.Policy {
	if fence == nil {
		return p
	}
	outer := p.Fence
	p.Fence = func() error {
		if outer != nil {
			if err := outer(); err != nil {
				return err
			}
		}
		if err := fence(); err != nil {
			return fmt.Errorf("%w: %w", webhook.ErrFenced, err)
		}
		return nil
	}
	return p
}
