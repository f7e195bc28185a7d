package client

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Binding ties requests to a reconciliation, a leadership, or both, and determines whether they may be sent.
type Binding struct {
	// Fence is called before each request, including reads, and before each retry of a write. If it returns an error, the
	// request is not sent and its error matches ErrFenced and that error. Fence must be quick and safe for concurrent
	// use.
	Fence func() error

	// RequireVersion makes updates, patches and applies carry the resourceVersion that they were computed from. After a
	// takeover, a request that is still on the wire can then only conflict. Fibers imply it.
	RequireVersion bool

	// Waiting, if set, shows the request that is being retried.
	Waiting *call.Waiting

	// Reported states that the caller reports the errors of requests: see call.Policy. Fibers imply it.
	Reported bool

	// Write attributes the writes to an owner in the ledger of the store.
	Write store.WriteContext
}

// Bound returns a client that applies b to all of its requests, whatever their context. The bindings of c, of the
// returned client and of a context ([Bind]) combine. All fences are called, and a version is required if any binding
// requires it. Writes belong to the innermost binding with an Owner; bindings of the client are inside those of the
// context. The two clients share everything else, so closing one closes the other.
func (c *Client) Bound(b Binding) *Client {
	if c.usable() != nil {
		return c
	}
	return &Client{shared: c.shared, binding: c.binding.with(b)}
}

// with returns outer combined with an inner binding.
func (outer Binding) with(inner Binding) Binding {
	inner.Fence = both(outer.Fence, inner.Fence)
	inner.RequireVersion = inner.RequireVersion || outer.RequireVersion
	if inner.Write.Owner == "" {
		inner.Write = outer.Write
	}
	if inner.Waiting == nil {
		inner.Waiting = outer.Waiting
	}
	inner.Reported = inner.Reported || outer.Reported
	return inner
}

// both calls outer and then inner; either may be nil.
func both(outer, inner func() error) func() error {
	if outer == nil || inner == nil {
		if outer == nil {
			return inner
		}
		return outer
	}
	return func() error {
		if err := outer(); err != nil {
			return err
		}
		return inner()
	}
}

type bindingKey struct{}

// Bind returns a context that applies b to its requests. It is for code that receives a context and a client, such as
// reconcilers and observers. If you own the client, use [Client.Bound]. The binding replaces that of the parent
// context, except that both fences apply and a version is required if either binding requires it.
func Bind(ctx context.Context, b Binding) context.Context {
	outer := bound(ctx)
	b.Fence, b.RequireVersion = both(outer.Fence, b.Fence), b.RequireVersion || outer.RequireVersion
	return context.WithValue(ctx, bindingKey{}, b)
}

func bound(ctx context.Context) Binding {
	b, _ := ctx.Value(bindingKey{}).(Binding)
	return b
}

// fence returns the reason why no request may be sent in this context; nil if requests may be sent. For an ended
// context it returns only the cause, which does not match ErrFenced.
func (c *Client) fence(ctx context.Context) error {
	if err := flow.Fenced(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	for _, fence := range [...]func() error{bound(ctx).Fence, c.binding.Fence} {
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
	p.Fence = both(p.Fence, func() error { return c.fence(ctx) })
	return c.shown(ctx, p)
}

// shown returns a policy with the Waiting and Reported of the bindings. Reported prevents a second log line for one
// failure.
func (c *Client) shown(ctx context.Context, p call.Policy) call.Policy {
	if _, fiber := flow.FromContext(ctx); fiber || c.binding.Reported || bound(ctx).Reported {
		p.Reported = true
	}
	if p.Waiting == nil {
		p.Waiting = c.binding.Waiting
	}
	if p.Waiting == nil {
		p.Waiting = bound(ctx).Waiting
	}
	return p
}

// requireVersion reports whether writes must carry the version that they were computed from.
func (c *Client) requireVersion(ctx context.Context) bool {
	if c.binding.RequireVersion || bound(ctx).RequireVersion {
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
	return bound(ctx).Write
}

// afterEnd returns a context and a client without the fiber, to save the end of that fiber. The fiber may have been
// cancelled and is then fenced. Its key is still reserved at this time, so there is no other writer. The write still
// carries a resourceVersion.
func (c *Client) afterEnd(ctx context.Context) (context.Context, *Client) {
	b := bound(ctx)
	b.RequireVersion, b.Reported = true, true
	return valueless{ctx}, c.Bound(b)
}

// valueless is a context without the values of its parent, including the fiber.
type valueless struct{ context.Context } //nolint:containedctx // it is a context

// Value implements [context.Context].
func (valueless) Value(any) any { return nil }
