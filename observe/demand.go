package observe

import (
	"reflect"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/store"
)

// demand predicts whether an observer asks for the objects of its events. For an observer that always asks, objects are
// decoded before the call, which is cheapest. For others, a cheaper check establishes that the object can be decoded,
// and Object decodes it on request. In both cases an observer is never called with an object that cannot be decoded.
//
// The prediction affects only the cost. Concurrent async calls share it and may distort it.
type demand struct {
	asked atomic.Bool
	inRow atomic.Int32 // consecutive events whose object was requested, up to enough
}

const (
	// enough is the number of consecutive requests after which the observer is expected to ask again.
	enough = 8
	// lookEvery is the number of events between two checks of the prediction, since a check costs as much as a call.
	lookEvery = 8
)

// prepare returns the objects of the nth event, or the reason why the object cannot be decoded.
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

// ask records a request for the object. d is nil for an event that is not checked.
func (d *demand) ask() {
	if d != nil && !d.asked.Load() {
		d.asked.Store(true)
	}
}

// count updates the prediction after a call.
func (d *demand) count() {
	switch n := d.inRow.Load(); {
	case !d.asked.Load():
		d.inRow.Store(0)
	case n < enough:
		d.inRow.Store(n + 1)
	}
}
