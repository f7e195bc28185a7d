package client

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/store"
)

// Binding ties the requests made in a context to a reconciliation, a leadership, or both.
type Binding struct {
	// Fence is asked before each request, reads included, and before each further try of a write. An error refuses it; it becomes an error that matches ErrFenced
	// and it. It must be quick and safe for concurrent use.
	Fence func() error

	// RequireVersion makes updates, patches and applies carry the resourceVersion that they were computed from, so that
	// one still on the wire when somebody else has taken over can only conflict. It is implied in a fiber.
	RequireVersion bool

	// Write tells the ledger of the store whose writes these are.
	Write store.WriteContext
}

type bindingKey struct{}

// Bind returns a context whose requests are bound. A binding replaces the one of the parent, except that fences add up.
func Bind(ctx context.Context, b Binding) context.Context {
	if outer := bound(ctx).Fence; outer != nil {
		inner := b.Fence
		b.Fence = func() error {
			if err := outer(); err != nil || inner == nil {
				return err
			}
			return inner()
		}
	}
	return context.WithValue(ctx, bindingKey{}, b)
}

func bound(ctx context.Context) Binding {
	b, _ := ctx.Value(bindingKey{}).(Binding)
	return b
}

// fence says why no request may be sent in this context; nil while it may. A context that has merely ended is the
// caller's own doing, and its cause says all.
func fence(ctx context.Context) error {
	if err := flow.Fenced(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	if f := bound(ctx).Fence; f != nil {
		if err := f(); err != nil {
			return fmt.Errorf("%w: %w", ErrFenced, err)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// fenced is a policy whose every try asks for leave, since what comes after a back-off may come too late.
func fenced(ctx context.Context, p call.Policy) call.Policy {
	outer := p.Fence
	p.Fence = func() error {
		if outer != nil {
			if err := outer(); err != nil {
				return err
			}
		}
		return fence(ctx)
	}
	return p
}

// requireVersion says whether writes of this context must carry the version that they were computed from.
func requireVersion(ctx context.Context) bool {
	if bound(ctx).RequireVersion {
		return true
	}
	_, ok := flow.FromContext(ctx)
	return ok
}
