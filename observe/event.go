package observe

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/store"
)

// Type is the type of an event.
type Type uint8

// The types of events.
const (
	// Added means that the object is new to this observer. Change.Initial marks objects that existed at the observer's
	// start.
	Added Type = iota + 1
	// Modified means that the object has changed since the observer last received it.
	Modified
	// Deleted means that the object is gone. Object is its last state; Change.Inferred marks a deletion concluded from
	// a list.
	Deleted
	// Synchronized means that this observer has handled all objects that existed at its start. It has no object.
	Synchronized
	// Resync delivers the known state again, for observers with [Every].
	Resync
	// Epoch means that the server's history was rolled back (etcd restored). Later versions may be lower. It has no
	// object.
	Epoch
	// Left means that the object is in a slot that this process no longer holds (source.Sharding). Object is its last
	// known state. The object is not deleted: another process works on it. If the slot returns, the object is Added
	// with Initial set.
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

// Change is the part of an event without the objects.
type Change struct {
	// Type is the type of the event.
	Type Type
	// Initial is true for objects that existed at the observer's start, and for those that arrive with a slot.
	Initial bool
	// Inferred is true for a deletion concluded from a list. The last state before the deletion was then not seen.
	Inferred bool
	// Key is the key of the object. It is empty for Synchronized and Epoch.
	Key cache.Key
	// Reason is the reason for an Epoch.
	Reason string

	version string
	record  *cache.Record
}

// ResourceVersion returns the version of the object. For Deleted it is the version of the deletion, if known. For an
// event without an object, it is the version up to which all changes are known.
func (c Change) ResourceVersion() string {
	if c.record != nil {
		return c.record.Version()
	}
	return c.version
}

// Event is one change as one observer receives it. T is the Go type of the objects, for example corev1.Pod.
type Event[T any] struct {
	Change

	given
}

// given holds the objects of an event, which are decoded on request.
type given struct {
	object any // a pointer; nil: no object, or decoding is known to succeed
	prior  *cache.Record
	demand *demand
}

// Object returns the new state of the object, or its last state for Deleted. It returns nil for Synchronized and Epoch.
// The object is shared and read-only. Object may decode it at the first call; a check before the call of the observer
// ensures that this succeeds.
func (e Event[T]) Object() *T {
	object, _ := e.give(e.record, reflect.TypeFor[T]()).(*T)
	return object
}

// Prior returns the state that this observer received before. It returns nil if there is none or if it cannot be
// decoded. The object is shared and read-only, and Prior decodes it at the first call.
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

// ObjectEvent is an Event whose objects have the type of the source; see [OnObject].
type ObjectEvent struct {
	Change

	given
	origin *Origin
}

// Object is like [Event.Object].
func (e ObjectEvent) Object() client.Object {
	object, _ := e.give(e.record, e.origin.object).(client.Object)
	return object
}

// Prior is like [Event.Prior].
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
	if err != nil { // the stored bytes are corrupted; see cache.Record.AsLater
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

// typeOf returns the observer's type of a store event, or 0 if observers do not receive it.
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

// Mask is a set of event types that distinguishes initial and live objects. The zero Mask means all.
type Mask uint16

// The members of a mask. OnAdded and OnModified select both initial and live events unless the mask also contains
// Initial or Live.
const (
	OnAdded Mask = 1 << iota
	OnModified
	OnDeleted
	OnSynchronized
	OnResync
	OnEpoch
	// Initial restricts the mask to objects that existed at the observer's start.
	Initial
	// Live restricts the mask to later changes.
	Live
	OnLeft

	everyType = OnAdded | OnModified | OnDeleted | OnSynchronized | OnResync | OnEpoch | OnLeft
)

// mask returns the mask with one type.
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

// String returns the names of the members, or "All" for the zero Mask.
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
