// Package writeoption carries options from other packages of this module to the writes of package client. They are no part
// of its interface.
package writeoption

import "context"

// Options tune the writes that are made with a context.
type Options struct {
	// ConflictsExpected says that the caller answers a conflict with another write. It is logged at Debug level.
	ConflictsExpected bool

	// Kept reports whether the object in the answer to a Replace, as JSON, is the one that was sent, as far as that
	// matters. If not, the client reads all of the answer into the object. Kept must not keep the bytes. Nil: it is.
	Kept func(answer []byte) bool
}

type key struct{}

// With returns a context whose writes have the options, which replace those of the parent.
func With(ctx context.Context, o Options) context.Context { return context.WithValue(ctx, key{}, o) }

// From returns the options of a context.
func From(ctx context.Context) Options {
	o, _ := ctx.Value(key{}).(Options)
	return o
}
