package group

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/leasing"
	"github.com/fairlead-io/fairlead/shard"
)

// fence answers for which slots this member may work now. The handover of the present incarnation writes it, under its
// own lock. Reads take no lock, since each request of the program asks.
type fence struct{ now atomic.Pointer[permit] }

// permit has the slots that an incarnation holds. It is immutable, except for the age of the renewal.
type permit struct {
	slots   shard.Set
	moving  map[int]time.Time // since when participants have been losing some of the slots
	renewal *leasing.Renewal  // of the incarnation: an old one makes the permit void
}

func (f *fence) open(p *permit) { f.now.Store(p) }

// close withdraws the permit. No slot is held any more.
func (f *fence) close() { f.now.Store(nil) }

// permit returns the present permit, or nil.
func (f *fence) permit() *permit { return f.now.Load() }

// checkObject is check for the slot of an object.
func (p *permit) checkObject(namespace string, uid types.UID) error {
	if p == nil {
		return ErrNotHeld
	}
	return p.check(p.slots.Layout().SlotOf(namespace, uid))
}

// check returns nil while it is certain that no other member holds the slot. The permit may be nil.
func (p *permit) check(slot int) error {
	if p == nil || !p.slots.Holds(slot) {
		return ErrNotHeld
	}
	if !p.renewal.Fresh() {
		return ErrLost
	}
	return nil
}

// held returns the slots that are certainly held. The permit may be nil.
func (p *permit) held(l shard.Layout) shard.Set {
	if p == nil || !p.renewal.Fresh() {
		return l.Set()
	}
	return p.slots
}

// losingSince returns since when a slot is being lost, or zero if it is not. The permit may be nil.
func (p *permit) losingSince(slot int) time.Time {
	if p == nil {
		return time.Time{}
	}
	return p.moving[slot]
}

// age returns the time since the start of the last successful renewal, or a negative duration without a permit.
func (p *permit) age() time.Duration {
	if p == nil {
		return -1
	}
	age, _ := p.renewal.Age()
	return age
}
