package store

import "k8s.io/apimachinery/pkg/types"

// EventType says what an event is about.
type EventType uint8

// The types of events.
const (
	// Added: an object appeared (Object). Initial marks those that were there when the subscriber came, and those that
	// came with a slot (Options.Shard).
	Added EventType = iota + 1
	// Modified: Prior became Object.
	Modified
	// Deleted: Object is the last known state. Inferred marks a deletion that the server did not report: a list omits
	// it.
	Deleted
	// Synced: all initial objects have been given; Count says how many. Once for each subscriber.
	Synced
	// Sync: a resync of Object, from the cache; nothing has changed.
	Sync
	// Epoch: the history of the server went back (Reason); lower versions follow.
	Epoch
	// QuarantinedObject: an object could not be kept (Key, UID, Version, Err). Who subscribes later is told after the
	// initial objects.
	QuarantinedObject
	// Left: the object is of a slot that this store does not hold any more (Options.Shard); Object is the last known
	// state. It exists as it did, and somebody else holds it. If the slot comes back it is Added, and Initial.
	Left
)

var eventNames = [...]string{
	Added: "ADDED", Modified: "MODIFIED", Deleted: "DELETED", Left: "LEFT", Synced: "SYNCED", Sync: "SYNC",
	Epoch: "EPOCH", QuarantinedObject: "QUARANTINED",
}

// String returns the name as kubectl prints it: "ADDED" and so on.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return ""
}

// Event is one change as one subscriber sees it.
type Event struct {
	Type   EventType
	Key    Key
	Object *Record // Added, Modified, Sync: the state; Deleted, Left: the last known state
	Prior  *Record // what this subscriber was given last for the key; nil if nothing

	Initial  bool // Added: part of the initial state, or of that of a slot that has come
	Inferred bool // Deleted: concluded from a list

	UID     types.UID // QuarantinedObject
	Version string    // Synced, Epoch: of the store; QuarantinedObject: of the object
	Count   int       // Synced: the number of initial objects given
	Reason  string    // Epoch
	Err     error     // QuarantinedObject
}
