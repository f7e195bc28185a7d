package observe

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Type says what happened.
type Type uint8

// The types of events.
const (
	// Added: the object is new to this observer. Initial tells those that were there when it began.
	Added Type = iota + 1
	// Modified: the object has changed since it was given last.
	Modified
	// Deleted: the object is gone; Object is its last state, Inferred tells whether it was only found missing.
	Deleted
	// Synchronized: this observer has handled all objects that existed when it began. No object.
	Synchronized
	// Resync: the known state once more, for observers that asked for it with [Every].
	Resync
	// Epoch: the history of the server was rolled back (etcd restored); versions may be lower from now on. No object.
	Epoch
	// Left: the object is of a slot that this process does not hold any more (source.Sharding); Object is its last known
	// state. It is not deleted: another process looks after it. If the slot comes back it is Added, and Initial.
	Left
)

// String returns the name of the type.
func (t Type) String() string {
	switch t {
	case Added:
		return "Added"
	case Modified:
		return "Modified"
	case Deleted:
		return "Deleted"
	case Synchronized:
		return "Synchronized"
	case Resync:
		return "Resync"
	case Epoch:
		return "Epoch"
	case Left:
		return "Left"
	default:
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
}

// Change is what an event says besides the objects.
type Change struct {
	// Type says what happened.
	Type Type
	// Initial is true for the objects that existed when the observer began, and for those that came with a slot.
	Initial bool
	// Inferred is true for a deletion that was concluded from a list, so that the very last state was not seen.
	Inferred bool
	// Key names the object; it is empty for Synchronized and Epoch.
	Key cache.Key
	// Reason says why, for Epoch.
	Reason string

	version string
	record  *cache.Record
}

// ResourceVersion returns the version of the object, for Deleted that of the deletion if it is known; without an
// object, that up to which everything is known.
func (c Change) ResourceVersion() string {
	if c.record != nil {
		return c.record.Version()
	}
	return c.version
}

// Event is one change as one observer is given it. T is the Go type of the objects, for example corev1.Pod.
type Event[T any] struct {
	Change

	given
}

// given are the objects of an event, decoded when they are asked for.
type given struct {
	object any // a pointer; nil: there is none, or it can be decoded for sure
	prior  *cache.Record
	demand *demand
}

// Object returns the object: its new state, or its last one for Deleted; nil for Synchronized and Epoch. It is
// shared and read-only. It may be decoded only now, and never if nobody asks: that it can be was found out before the
// observer was called.
func (e Event[T]) Object() *T {
	object, _ := e.give(e.record, reflect.TypeFor[T]()).(*T)
	return object
}

// Prior returns the state that this observer was given before, nil if there was none or if it cannot be decoded. It is
// shared and read-only, and decoded only when asked for.
func (e Event[T]) Prior() *T {
	if e.prior == nil {
		return nil
	}
	object, err := e.prior.AsLike(e.record, reflect.TypeFor[T]())
	if err != nil {
		return nil
	}
	return object.(*T)
}

// ObjectEvent is an Event whose objects are of the type of the source, whatever it is; see [OnObject].
type ObjectEvent struct {
	Change

	given
	origin *Origin
}

// Object is Event.Object.
func (e ObjectEvent) Object() client.Object {
	object, _ := e.give(e.record, e.origin.object).(client.Object)
	return object
}

// Prior is Event.Prior.
func (e ObjectEvent) Prior() client.Object {
	if e.prior == nil {
		return nil
	}
	object, err := e.prior.AsLike(e.record, e.origin.object)
	if err != nil {
		return nil
	}
	return object.(client.Object)
}

// give returns the object of an event.
func (g *given) give(r *cache.Record, t reflect.Type) any {
	if r == nil {
		return nil
	}
	g.demand.ask()
	if g.object != nil {
		return g.object
	}
	object, err := r.AsLike(g.prior, t)
	if err != nil { // see cache.Record.AsLater: our own bytes have changed
		return nil
	}
	return object
}

func changeOf(e *store.Event, t Type) Change {
	return Change{
		Type: t, Initial: e.Initial, Inferred: e.Inferred, Key: e.Key, Reason: e.Reason, version: e.Version,
		record: e.Object,
	}
}

// typeOf returns the type under which an observer is told of an event; 0 if it is not.
func typeOf(t store.EventType) Type {
	switch t {
	case store.Added:
		return Added
	case store.Modified:
		return Modified
	case store.Deleted:
		return Deleted
	case store.Synced:
		return Synchronized
	case store.Sync:
		return Resync
	case store.Epoch:
		return Epoch
	case store.Left:
		return Left
	default:
		return 0
	}
}

// Mask is a set of event types, with initial and live objects apart. The zero Mask means all.
type Mask uint16

// The members of a mask. OnAdded and OnModified stand for initial and live events alike unless Initial or Live is
// in the mask too.
const (
	OnAdded Mask = 1 << iota
	OnModified
	OnDeleted
	OnSynchronized
	OnResync
	OnEpoch
	// Initial restricts the mask to objects that existed when the observer began.
	Initial
	// Live restricts the mask to what happened afterwards.
	Live
	OnLeft

	everyType = OnAdded | OnModified | OnDeleted | OnSynchronized | OnResync | OnEpoch | OnLeft
)

// mask is the set of one type.
func (t Type) mask() Mask {
	if t == Left {
		return OnLeft
	}
	return 1 << (t - 1)
}

func (m Mask) accepts(t Type, initial bool) bool {
	if m&everyType != 0 && m&t.mask() == 0 {
		return false
	}
	if m&(Initial|Live) == 0 || t == Synchronized || t == Epoch {
		return true
	}
	if initial {
		return m&Initial != 0
	}
	return m&Live != 0
}

// String returns the names of the members, "All" for the zero Mask.
func (m Mask) String() string {
	if m == 0 {
		return "All"
	}
	var names []string
	for t := Added; t <= Left; t++ {
		if m&t.mask() != 0 {
			names = append(names, t.String())
		}
	}
	if m&Initial != 0 {
		names = append(names, "Initial")
	}
	if m&Live != 0 {
		names = append(names, "Live")
	}
	return strings.Join(names, "|")
}
