// Package binding ties the requests of package client to a reconciliation, a leadership or a slot, for the packages of
// this module. It is not part of the public interface of that package.
package binding

import (
	"context"

	"github.com/fairlead-io/fairlead/internal/store"
)

// Binding ties requests to a reconciliation, a leadership, or both, and determines whether they may be sent.
type Binding struct {
	// Fence is called before each request, including reads, and before each retry of a write. If it returns an error, the
	// request is not sent and its error matches client.ErrFenced and that error. Fence must be quick and safe for
	// concurrent use.
	Fence func() error

	// RequireVersion makes updates, patches and applies carry the resourceVersion that they were computed from. After a
	// takeover, a request that is still on the wire can then only conflict. Fibers imply it.
	RequireVersion bool

	// Waiting, if set, shows the request that is being retried.
	Waiting *Waiting

	// Reported states that the caller reports the errors of requests: see call.Policy. Fibers imply it.
	Reported bool

	// Write attributes the writes to an owner in the ledger of the store.
	Write store.WriteContext
}

// Around returns b combined with an inner binding. All fences are called, and a version is required if any binding
// requires it. Writes belong to the innermost binding with an Owner.
func (b Binding) Around(inner Binding) Binding {
	inner.Fence = Both(b.Fence, inner.Fence)
	inner.RequireVersion = inner.RequireVersion || b.RequireVersion
	if inner.Write.Owner == "" {
		inner.Write = b.Write
	}
	if inner.Waiting == nil {
		inner.Waiting = b.Waiting
	}
	inner.Reported = inner.Reported || b.Reported
	return inner
}

// Both calls outer and then inner; either may be nil.
func Both(outer, inner func() error) func() error {
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

type key struct{}

// With returns a context that applies b to its requests. It is for code that receives a context and a client, such as
// reconcilers and observers. The owner of a client uses client.Client.Bound. The binding replaces that of the parent
// context, except that both fences apply and a version is required if either binding requires it.
func With(ctx context.Context, b Binding) context.Context {
	outer := From(ctx)
	b.Fence, b.RequireVersion = Both(outer.Fence, b.Fence), b.RequireVersion || outer.RequireVersion
	return context.WithValue(ctx, key{}, b)
}

// From returns the binding of a context.
func From(ctx context.Context) Binding {
	b, _ := ctx.Value(key{}).(Binding)
	return b
}
