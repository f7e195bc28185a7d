// Package alloc allocates values outside of the cluster, such as an address of a cloud, exactly once, and records them in the
// object that needs them.
//
//	ip, err := alloc.Once(ctx, c, gateway, "public-ip", func(ctx context.Context, key string) (string, error) {
//		return cloud.ReserveIP(ctx, key) // may be called again after a crash, with the same key
//	})
//
// [Once] returns the value that is recorded, own writes included. If there is none, it first records an intent with an
// idempotency key, then calls the function with that key, then records what it returned. Whatever fails in between, the next
// call uses the same key, so that a provider that honours it returns the first resource. For a provider that does not, give a
// function that looks for it ([Find]).
//
// [Release] goes the same way back, and then the slot can be used again, with another key.
//
// # Where it is kept
//
// In the first field of type [Slots] of the object's status, or in an annotation of objects that have none:
//
//	type GatewayStatus struct {
//		Allocated alloc.Slots `json:"allocated,omitempty"`
//	}
//
// # Invariants
//
// Before a function of the user is called, the server has confirmed a state of the object that holds the intent, has the
// finalizer of the controller, and is not being deleted (O2). Every write carries the resourceVersion of the state that it was
// computed from. A value, once recorded, is replaced by no other one.
//
// Two processes that work on one object at a time are safe with a provider that honours keys and remembers them beyond a
// release. With any other one (Find alone, or one that forgets), one at a time must work on an object: run under a lease, in which
// a create that was on its way when its process died may still arrive later than the search; the function should bound that
// time. A create that comes back when its slot is another's, or its object gone, is an [OrphanError], for which [Discard]
// can give it back.
package alloc
