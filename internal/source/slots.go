package source

import (
	"errors"
	"sync"

	"github.com/fairlead-io/fairlead/shard"
)

// A change of the slots ends the watch of a scope. The scope then does the following:
//
//   - The sink first drops the lost slots. It also drops slots that were lost and have returned, because another holder
//     may have written in between. The boundaries of lost slots may have changed, so that their objects are in others.
//   - The scope lists the gained slots alone and adds them atomically. It uses a consistent list, or the initial events
//     of a watch if the server selects those by slot. The result includes the writes of the former holder.
//   - One watch of all held slots continues from its previous version. Changes of the new slots up to the version of
//     their list are dropped.
//
// Slots that stay are not listed again. Their events wait for the list of the gained slots. A failed list is retried
// like any other. If everything must be listed, that list is consistent and includes the new slots. A change during a
// list restarts it, so several quick changes cost one list.

// slotFilter holds the slots of a scope and drops objects of other slots. The goroutine of the scope makes all calls,
// except where a method says otherwise.
type slotFilter struct {
	sharding *Sharding // nil: all objects are held
	names    *namespaces
	counts   *Counters // the filter adds the received and the filtered objects
	turn     uint64    // turn of the Sharding at which held was set
	unlisted shard.Set // held slots that are not listed yet

	// mu guards writes of the fields below, and reads by other goroutines.
	mu        sync.Mutex
	held      *shard.Set // nil: all objects
	pending   shard.Set  // unlisted, for other goroutines
	completed slotProgress
}

func newSlotFilter(sharding *Sharding, names *namespaces, counts *Counters) *slotFilter {
	f := &slotFilter{sharding: sharding, names: names, counts: counts}
	if sharding != nil {
		f.held = new(sharding.layout.Set())
	}
	return f
}

var (
	errSlots   = errors.New("slots have changed")
	errNoSlots = errors.New("no slot is held")
)

// slotChange describes a change of the slots.
type slotChange struct {
	held, came, left shard.Set
	stay             shard.Set // held before and after, without interruption
	empties          bool      // the sink has lost all its content
}

// adopt applies the current slots of the Sharding to the sink. It returns false if they have not changed. The caller
// calls publish after it has applied the change, too.
func (f *slotFilter) adopt(sink Sink) (c slotChange, changed bool) {
	if f.sharding == nil {
		return c, false
	}
	set, turn, lost := f.sharding.since(f.turn)
	if turn == f.turn {
		return c, false
	}
	had := *f.held
	stay := had.Both(set).Minus(lost)
	f.turn, f.unlisted = turn, set.Minus(stay.Minus(f.unlisted))
	f.mu.Lock()
	f.held, f.pending = &set, f.unlisted
	f.mu.Unlock()
	sharded := sink.(Sharded)
	// A slot that has returned may have had another holder. So may the objects of a lost slot, if they are in a gained one
	// by newer boundaries.
	drops := !had.Both(set).Both(lost).IsEmpty() || had.Layout() != set.Layout() && !had.Minus(stay).IsEmpty()
	if drops {
		sharded.Hold(set.Both(stay))
	}
	sharded.Hold(set)
	return slotChange{
		held: set, came: set.Minus(stay), left: had.Minus(stay), stay: stay,
		empties: set.IsEmpty() || stay.IsEmpty() && drops,
	}, true
}

// publish publishes the progress of the scope and wakes the waiters of the Sharding.
func (f *slotFilter) publish() {
	f.mu.Lock()
	f.completed.left, f.pending = f.turn, f.unlisted
	if f.unlisted.IsEmpty() {
		f.completed.listed = f.turn
	}
	f.mu.Unlock()
	f.sharding.notifyProgress()
}

// listed records a list of some gained slots. The caller calls publish.
func (f *slotFilter) listed(slots shard.Set) { f.unlisted = f.unlisted.Minus(slots) }

// allListed records a list of all held slots.
func (f *slotFilter) allListed() {
	if f.held != nil {
		f.unlisted = shard.Set{}
		f.publish()
	}
}

// toList returns the held slots that are not listed yet.
func (f *slotFilter) toList() shard.Set { return f.unlisted }

// isSharded reports whether the scope holds only some slots.
func (f *slotFilter) isSharded() bool { return f.sharding != nil }

// holdsNone reports whether no object can be held.
func (f *slotFilter) holdsNone() bool { return f.held != nil && f.held.IsEmpty() }

// isAssigned reports whether the slots are known: the Sharding has been set.
func (f *slotFilter) isAssigned() bool { return f.turn > 0 }

// holdsAll reports whether all objects are held. Otherwise the server's remaining item count is useless, because it
// includes objects that the server does not send.
func (f *slotFilter) holdsAll() bool { return f.held == nil || f.held.IsAll() }

// current returns the slots that are held; nil: all objects. Any goroutine may call it.
func (f *slotFilter) current() *shard.Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

// progress returns the turns of the Sharding that the scope has completed. Any goroutine may call it.
func (f *slotFilter) progress() slotProgress {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.completed
}

// unready returns the slots of want that the scope does not hold with a list. Any goroutine may call it.
func (f *slotFilter) unready(want shard.Set) shard.Set {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		return shard.Set{}
	}
	return want.Minus(f.held.Minus(f.pending))
}

// dropsListed counts an object of a list and reports whether its slot is not held. gained restricts the list; nil: all
// held slots.
func (f *slotFilter) dropsListed(e *event, gained *shard.Set) bool {
	size := int64(len(e.obj.Raw))
	f.counts.WireObjects++
	f.counts.WireBytes += size
	f.names.saw(e.obj.Header.Namespace)
	slots := f.held
	if gained != nil {
		slots = gained
	}
	if !isElsewhere(slots, &e.obj, e.err != nil) {
		return false
	}
	f.counts.FilteredObjects++
	f.counts.FilteredBytes += size
	return true
}

// dropsChange counts a change of a watch and reports whether the slot of its object is not held.
func (f *slotFilter) dropsChange(e *event) bool {
	size := int64(len(e.obj.Raw))
	f.counts.WireEvents++
	f.counts.WireBytes += size
	f.names.saw(e.obj.Header.Namespace)
	if !isElsewhere(f.held, &e.obj, e.err != nil) {
		return false
	}
	f.counts.FilteredEvents++
	f.counts.FilteredBytes += size
	return true
}

// hasDropped reports whether the server has sent objects or, with changes, also changes of slots that are not held.
func (f *slotFilter) hasDropped(changes bool) bool {
	return f.counts.FilteredObjects > 0 || changes && f.counts.FilteredEvents > 0
}

// isElsewhere reports whether an object belongs to a slot outside slots. It uses the hash of the server, so it does not
// matter whether the server has selected. An unreadable object without the member that determines its slot counts as
// inside.
func isElsewhere(slots *shard.Set, o *Object, unread bool) bool {
	if slots == nil {
		return false
	}
	h := &o.Header
	if slots.HasBytes(h.Namespace, h.UID) {
		return false
	}
	tells := len(h.Namespace) > 0
	if slots.Layout().By == shard.UID {
		tells = len(h.UID) > 0
	}
	return !unread || tells
}
