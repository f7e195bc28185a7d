// Package writeoption passes options from other packages of this module to the writes of package client. The options
// are not part of the public interface of that package.
package writeoption

import "context"

// Options configures the writes that are made with a context.
type Options struct {
	// ConflictsExpected means that the caller handles a conflict with another write, which is then logged at Debug level.
	ConflictsExpected bool

	// Kept reports whether the object in the response to a Replace, as JSON, equals the sent object in all relevant parts.
	// If not, the client decodes the response into the object. Kept must not retain the bytes. A nil Kept means true.
	Kept func(answer []byte) bool
}

type key struct{}

// With returns a context whose writes have the options. They replace the options of the parent.
func With(ctx context.Context, o Options) context.Context { return context.WithValue(ctx, key{}, o) }

// From returns the options of a context.
func From(ctx context.Context) Options {
	o, _ := ctx.Value(key{}).(Options)
	return o
}
