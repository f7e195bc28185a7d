package client

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Bound returns a client that applies b to all of its requests, whatever their context. Other packages of this module
// call it. The bindings of c, of the returned client and of a context combine; those of the client are inside those of
// the context. The two clients share everything else, so closing one closes the other.
func (c *Client) Bound(b binding.Binding) *Client {
	if c.usable() != nil {
		return c
	}
	return &Client{shared: c.shared, binding: c.binding.Around(b)}
}

// fence returns the reason why no request may be sent in this context; nil if requests may be sent. For an ended
// context it returns only the cause, which does not match ErrFenced.
func (c *Client) fence(ctx context.Context) error {
	if err := flow.Fenced(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	for _, fence := range [...]func() error{binding.From(ctx).Fence, c.binding.Fence} {
		if fence == nil {
			continue
		}
		if err := fence(); err != nil {
			return fmt.Errorf("%w: %w", ErrFenced, err)
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// fenced returns a policy that calls the fence before every try, because permission may end during a back-off.
func (c *Client) fenced(ctx context.Context, p call.Policy) call.Policy {
	p.Fence = binding.Both(p.Fence, func() error { return c.fence(ctx) })
	return c.shown(ctx, p)
}

// shown returns a policy with the Waiting and Reported of the bindings. Reported prevents a second log line for one
// failure.
func (c *Client) shown(ctx context.Context, p call.Policy) call.Policy {
	if _, fiber := flow.FromContext(ctx); fiber || c.binding.Reported || binding.From(ctx).Reported {
		p.Reported = true
	}
	if p.Waiting == nil {
		p.Waiting = c.binding.Waiting
	}
	if p.Waiting == nil {
		p.Waiting = binding.From(ctx).Waiting
	}
	return p
}

// requireVersion reports whether writes must carry the version that they were computed from.
func (c *Client) requireVersion(ctx context.Context) bool {
	if c.binding.RequireVersion || binding.From(ctx).RequireVersion {
		return true
	}
	_, ok := flow.FromContext(ctx)
	return ok
}

// owner returns the attribution of writes in a context.
func (c *Client) owner(ctx context.Context) store.WriteContext {
	if c.binding.Write.Owner != "" {
		return c.binding.Write
	}
	return binding.From(ctx).Write
}

// afterEnd returns a context and a client without the fiber, to save the end of that fiber. The fiber may have been
// cancelled and is then fenced. Its key is still reserved at this time, so there is no other writer. The write still
// carries a resourceVersion.
func (c *Client) afterEnd(ctx context.Context) (context.Context, *Client) {
	b := binding.From(ctx)
	b.RequireVersion, b.Reported = true, true
	return valueless{ctx}, c.Bound(b)
}

// valueless is a context without the values of its parent, including the fiber.
type valueless struct{ context.Context } //nolint:containedctx // it is a context

// Value implements [context.Context].
func (valueless) Value(any) any { return nil }
