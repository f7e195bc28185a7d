package watchtest

import (
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
)

// State is one version of one incarnation of an object. The zero value says that there is none.
type State struct{ UID, Version string }

func (s State) String() string {
	if s == (State{}) {
		return "nothing"
	}
	return fmt.Sprintf("version %s of uid %s", s.Version, s.UID)
}

// Event is an event as a subscriber was given it, in a form in which the events of any cache can be written down.
type Event struct {
	At   time.Time
	Type store.EventType
	Key  string // "namespace/name", or "name"

	Object State // of Added, Modified, Deleted, Sync
	Prior  State // what came with the event as the state before

	Initial, Inferred bool
	Count             int    // of Synced
	Reason            string // of Epoch; the error of a quarantined object

	// Cached is what the cache had at the key when the event was handled, if Looked.
	Cached State
	Looked bool
}

// String is short, for messages of tests.
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

// eventOf writes an event of a store down. The time and the state of the cache are the caller's to add.
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

// StateOf returns the state of a record; the zero State for nil.
func StateOf(r *store.Record) State {
	if r == nil {
		return State{}
	}
	return State{UID: string(r.UID()), Version: r.Version()}
}
