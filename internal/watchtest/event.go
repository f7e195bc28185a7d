package watchtest

import (
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
)

// State identifies one version of an object. The zero value means that there is no object.
type State struct{ UID, Version string }

func (s State) String() string {
	if s == (State{}) {
		return "nothing"
	}
	return fmt.Sprintf("version %s of uid %s", s.Version, s.UID)
}

// Event is an event that a subscriber has received, in a form for any cache.
type Event struct {
	At   time.Time
	Type store.EventType
	Key  string // "namespace/name", or "name"

	Object State // set for Added, Modified, Deleted and Sync
	Prior  State // state before the event, according to the event

	Initial, Inferred bool
	Count             int    // of Synced
	Reason            string // of Epoch; for a quarantined object, the error

	// Cached is the cached state of the key when the event was handled. It is valid if Looked is true.
	Cached State
	Looked bool
}

// String returns a short form for failure messages.
func (e Event) String() string {
	switch e.Type {
	case store.Synced:
		return fmt.Sprintf("SYNCED %d", e.Count)
	case store.Epoch:
		return "EPOCH " + e.Reason
	case store.QuarantinedObject:
		return fmt.Sprintf("QUARANTINED %s: %s", e.Key, e.Reason)
	}
	text := fmt.Sprintf("%s %s@%s", e.Type, e.Key, e.Object.Version)
	if e.Initial {
		text += " initial"
	}
	if e.Inferred {
		text += " inferred"
	}
	return text
}

// eventOf converts an event of a store. The caller sets At, Cached and Looked.
func eventOf(e store.Event) Event {
	return Event{
		Type: e.Type, Key: e.Key.String(), Object: StateOf(e.Object), Prior: StateOf(e.Prior), Initial: e.Initial,
		Inferred: e.Inferred, Count: e.Count, Reason: reason(e),
	}
}

func reason(e store.Event) string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return e.Reason
}

// StateOf returns the state of a record, or the zero State for nil.
func StateOf(r *store.Record) State {
	if r == nil {
		return State{}
	}
	return State{UID: string(r.UID()), Version: r.Version()}
}
