package binding

import "context"

type recoveryKey struct{}

// WithRecovery returns a context with the function that [Recovered] calls. It is for the steps of a fiber.
func WithRecovery(ctx context.Context, recovered func()) context.Context {
	return context.WithValue(ctx, recoveryKey{}, recovered)
}

// Recovered reports that the work on an object has succeeded so far. The fiber of ctx may go on. The controller then
// forgets an earlier failure, as after a reconciliation without an error. Recovered does nothing if ctx has no such
// function.
func Recovered(ctx context.Context) {
	if recovered, ok := ctx.Value(recoveryKey{}).(func()); ok {
		recovered()
	}
}
