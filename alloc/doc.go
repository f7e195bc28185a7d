// Package alloc allocates values outside of the cluster, such as an address of a cloud, exactly once, and records them
// in the object that needs them.
//
//	ip, err := alloc.Once(ctx, c, gateway, "public-ip", func(ctx context.Context, key string) (string, error) {
//		return cloud.ReserveIP(ctx, key) // may be called again after a crash, with the same key
//	})
//
// [Once] returns the value that is recorded, own writes included. If there is none, it first records an intent with an
// idempotency key, then calls the function with that key, then records what it returned. Whatever fails in between, the
// next call uses the same key, so that a provider that honours it returns the first resource. For a provider that does
// not, give a function that looks for it ([Find]).
//
// [Release] goes the same way back, and then the slot can be used again, with another key. While a slot is being
// released Once fails with [ErrReleasing]: call Release again.
//
// # Where it is kept
//
// In the first field of type [Slots] of the object's status, or in an annotation of objects that have none:
//
//	type GatewayStatus struct {
//		Allocated alloc.Slots `json:"allocated,omitempty"`
//	}
//
// A status may be lost: others wipe it, or put back an old one. What must not be forgotten, that there may be a
// resource under a key, that it is being given back, how many were before, is therefore in that annotation, too. It
// takes one more write for an intent and two for a release, and the right to patch the object besides its status. Who
// loses both has lost the slots, and only the next Once with a provider that honours keys finds again what there was.
// [Held] and [Values] know both places; the status alone shows what is usual.
//
// # How old the answers are
//
// A value that Once finds in what the client reads is returned at once. It is as old as the cache: whoever leads, or is
// the only one to work on the object, has what is there; another replica may be given, as long as its watch lags, a
// value that was released meanwhile. With [Live], Once asks the server first, for one request: its value was recorded
// at some moment during the call. Everything else (there is none, it is being released, it was superseded, the object
// is gone or another one) is said only if the server has.
//
// # Invariants
//
// Before a function of the user is called, the server has confirmed a state of the object that holds the intent, has
// the finalizer of the controller, and is not being deleted (O2). Every write carries the resourceVersion of the state
// that it was computed from. A value, once recorded, is replaced by no other one. The number of a slot never decreases,
// and a key whose number has passed is never used again: release and [Discard] are called for such a key only, or one
// that nobody can record any more, and a value whose key was given back is never recorded, by however many processes,
// with any lag of their watches.
//
// Several processes that work on one object at a time are safe with a provider that honours keys and remembers them
// beyond a release. With any other one (Find alone, or one that forgets), one at a time must work on an object: run
// under a lease, in which a create that was on its way when its process died may still arrive later than the search;
// the function should bound that time. A create that comes back when its slot is another's, or its object gone, is an
// [OrphanError], for which [Discard] can give it back.
package alloc
