package store

import "k8s.io/apimachinery/pkg/types"

// EventType is the type of an event.
type EventType uint8

// The types of events.
const (
	// Added reports a new Object. Initial is set for objects that existed when the subscriber started, and for those
	// that came with a slot (Options.Shard).
	Added EventType = iota + 1
	// Modified reports a change from Prior to Object.
	Modified
	// Deleted reports a deletion; Object is the last known state. Inferred is set if the server did not report the
	// deletion, but a list omits the object.
	Deleted
	// Synced reports that all initial objects have been given; Count is their number. Each subscriber gets it once.
	Synced
	// Sync is a resync of Object from the cache, without a change.
	Sync
	// Epoch reports that the server's history was rolled back (Reason). Lower versions follow.
	Epoch
	// QuarantinedObject reports an object that could not be kept (Key, UID, Version, Err). A later subscriber gets it
	// after the initial objects.
	QuarantinedObject
	// Left reports an object whose slot this store does not hold any more (Options.Shard); Object is the last known
	// state. The object still exists, and another replica holds it. If the slot comes back, the object is Added, with
	// Initial.
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
	Prior  *Record // the state that this subscriber got last for the key; nil if none

	Initial  bool // Added: part of the initial state, or of a slot that has come
	Inferred bool // Deleted: concluded from a list

	UID     types.UID // QuarantinedObject
	Version string    // Synced, Epoch: of the store; QuarantinedObject: of the object
	Count   int       // Synced: the number of initial objects given
	Reason  string    // Epoch
	Err     error     // QuarantinedObject
}
