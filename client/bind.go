package client

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Binding is what requests are bound to: a reconciliation, a leadership, or both. It says what right there is to make
// them.
type Binding struct {
	// Fence is asked before each request, reads included, and before each further try of a write. An error refuses it; it
	// becomes an error that matches ErrFenced and it. It must be quick and safe for concurrent use.
	Fence func() error

	// RequireVersion makes updates, patches and applies carry the resourceVersion that they were computed from, so that
	// one still on the wire when somebody else has taken over can only conflict. It is implied in a fiber.
	RequireVersion bool

	// Waiting, if set, shows the request that is being tried again.
	Waiting *call.Waiting

	// Reported says that whoever is given an error reports it: see call.Policy. It is implied in a fiber.
	Reported bool

	// Write tells the ledger of the store whose writes these are.
	Write store.WriteContext
}

// Bound returns a client whose requests are bound, whatever their context: the binding is where the client is. Those
// of c, of the returned client and of a context (see [Bind]) add up: all fences are asked, a version is required if
// one of them does, and writes are those of the innermost that names an Owner; the client's are further in than the
// context's. The two are one client otherwise, so that closing one closes the other.
func (c *Client) Bound(b Binding) *Client {
	if c.usable() != nil {
		return c
	}
	return &Client{shared: c.shared, binding: c.binding.with(b)}
}

// with adds an inner binding.
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

// both asks one fence after the other; either may be nil.
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

// Bind returns a context whose requests are bound: for code that is given a context and a client, as that of
// reconcilers and observers is. Where the client is one's own, use [Client.Bound]. A binding replaces the one of the
// parent, except that fences add up.
func Bind(ctx context.Context, b Binding) context.Context {
	b.Fence = both(bound(ctx).Fence, b.Fence)
	return context.WithValue(ctx, bindingKey{}, b)
}

func bound(ctx context.Context) Binding {
	b, _ := ctx.Value(bindingKey{}).(Binding)
	return b
}

// fence says why no request may be sent in this context; nil while it may. A context that has merely ended is the
// caller's own doing, and its cause says all.
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

// fenced is a policy whose every try asks for leave, since what comes after a back-off may come too late.
func (c *Client) fenced(ctx context.Context, p call.Policy) call.Policy {
	p.Fence = both(p.Fence, func() error { return c.fence(ctx) })
	return c.shown(ctx, p)
}

// shown is a policy whose tries are shown to those who ask, and whose failure is told once.
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

// requireVersion says whether writes must carry the version that they were computed from.
func (c *Client) requireVersion(ctx context.Context) bool {
	if c.binding.RequireVersion || bound(ctx).RequireVersion {
		return true
	}
	_, ok := flow.FromContext(ctx)
	return ok
}

// owner says whose writes those made in a context are.
func (c *Client) owner(ctx context.Context) store.WriteContext {
	if c.binding.Write.Owner != "" {
		return c.binding.Write
	}
	return bound(ctx).Write
}

// afterEnd returns what the end of a fiber is recorded by: its context and the client without the fiber, which may
// have been cancelled and therefore is fenced. It is recorded before its key is free, so nobody else can be writing.
// The write still holds for one version only.
func (c *Client) afterEnd(ctx context.Context) (context.Context, *Client) {
	b := bound(ctx)
	b.RequireVersion, b.Reported = true, true
	return valueless{ctx}, c.Bound(b)
}

// valueless is a context without the values of another one, the fiber among them.
type valueless struct{ context.Context } //nolint:containedctx // it is a context

// Value implements [context.Context].
func (valueless) Value(any) any { return nil }
