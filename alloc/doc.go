// Package alloc allocates values outside of the cluster exactly once, such as an IP address of a cloud. It records each
// value in the object that needs it.
//
//	ip, err := alloc.Once(ctx, c, gateway, "public-ip", func(ctx context.Context, key string) (string, error) {
//		return cloud.ReserveIP(ctx, key) // may be called again after a crash, with the same key
//	})
//
// [Once] returns the recorded value, including the client's own writes. If there is none, Once records an intent with
// an idempotency key. It then calls the function with that key and records the returned value. If any of these steps
// fails, the next call uses the same key, so a provider that honours it returns the same resource. For other providers,
// pass a function that finds the resource by its key ([Find]).
//
// [Release] gives the value back. Afterwards the slot can be used again, with a new key. While a slot is being
// released, Once fails with [ErrReleasing]; call Release again to complete the release.
//
// # Storage
//
// The slots are stored in the first field of type [Slots] of the object's status. If there is none, they are stored in
// an annotation. An example of such a field:
//
//	type GatewayStatus struct {
//		Allocated alloc.Slots `json:"allocated,omitempty"`
//	}
//
// A status can be lost: another client may clear it or restore an old one. The annotation therefore also holds the data
// that must survive: the keys that may have a resource, the releases in progress, and the number of completed releases.
// That takes one more write for an intent and two more for a release. It also requires permission to patch the object
// outside of its status. If both are lost, the slots are lost, and only the next Once with a provider that honours keys
// finds the resource again. [Held] and [Values] read both places. The status alone is sufficient for display.
//
// # Age of values
//
// Once returns a value that it finds in the client's cache at once, so the value is as old as the cache. That is
// correct for the leader, or for the only process that works on the object. In another replica, the value may have been
// released already, as long as its watch lags. With [Live], Once first asks the server, which costs one request; its
// value was then recorded at some moment during the call. All other results come from the server: there is no value,
// the slot is being released, the intent was superseded, or the object is gone or was replaced.
//
// # Invariants
//
// Before a user's function is called, the server has confirmed a state of the object (O2). In that state, the object
// holds the intent, has the finalizer of the controller, and is not being deleted. Every write carries the
// resourceVersion of the state that it was computed from. A recorded value is never replaced by another one. The number
// of a slot never decreases, and a key of an earlier number is never used again. Release and [Discard] functions are
// called only for such a key, or for a key whose value can no longer be recorded. A value whose key was released is
// never recorded. All of this holds for any number of processes, with any lag of their watches.
//
// Several processes may work on one object at a time if the provider honours keys and remembers them after a release.
// With other providers (only Find, or one that forgets keys), only one process at a time may work on an object: run
// under a lease. Even then, a create that was in flight when its process died may arrive after the search of the next
// process. The function should bound that time. If a create returns after its slot was reused or its object is gone,
// Once returns an [OrphanError]. A [Discard] function can release its value.
//
// # Parts
//
// Neither part has a lock, since each belongs to one call of Once or Release.
//
//   - stored (stored.go): one slot of one object in the API server, with the last known state of the object. It reads
//     and writes, and decides nothing. mark.go and slots.go have the places and the format, as functions.
//   - allocation (alloc.go, record.go, release.go): the order of the steps of Once and Release, and the conditions for
//     each step.
package alloc
