package observe

import (
	"reflect"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/store"
)

// demand is whether an observer asks for the objects of its events. Of one that always does they are decoded before
// it is called, which is the shortest way. Of others it is only found out whether they can be, which costs a part of
// that, and they are decoded by Object, or never. Either way an observer is not called with an object that it cannot
// be given.
//
// It is a guess that changes nothing but the cost: async calls, which share it, may spoil it.
type demand struct {
	asked atomic.Bool
	inRow atomic.Int32 // events in a row of which the object was asked for, up to enough
}

const (
	// enough: of an observer that has asked so many times in a row it is believed that it goes on.
	enough = 8
	// lookEvery is how many events it is believed at a time, since to look costs as much as a call does.
	lookEvery = 8
)

// prepare returns the objects of the nth event, or why there is none that could be given.
func (d *demand) prepare(e *store.Event, t reflect.Type, n uint64) (g given, err error) {
	g.prior = e.Prior
	if e.Object == nil {
		return g, nil
	}
	always := d.inRow.Load() >= enough
	if look := !always || n%lookEvery == 0; look {
		d.asked.Store(false)
		g.demand = d
	}
	if always {
		g.object, err = e.Object.AsLike(e.Prior, t)
	} else {
		g.object, err = e.Object.AsLater(t)
	}
	return g, err
}

// ask is that of an event that is not looked at where d is nil.
func (d *demand) ask() {
	if d != nil && !d.asked.Load() {
		d.asked.Store(true)
	}
}

// count takes note of whether the object was asked for.
func (d *demand) count() {
	switch n := d.inRow.Load(); {
	case !d.asked.Load():
		d.inRow.Store(0)
	case n < enough:
		d.inRow.Store(n + 1)
	}
}
