package controllerruntime

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/store"
)

// aheadMin is the number of events from which objects are decoded ahead.
const aheadMin = 16

// ahead decodes the objects of a batch of events while the handler runs, from the last event backwards until it meets
// the handler. The handler finds them decoded. Its goroutine would otherwise decode two objects for each event, and
// leave the other processors idle.
type ahead struct {
	next    atomic.Int64 // the event that the handler gets next
	decoded []any        // keeps the objects in memory; owned by the goroutine
	done    sync.WaitGroup
}

// start starts to decode the objects of a batch. decode ignores errors: the handler's goroutine decodes such an object
// again, and reports the error. The caller calls stop.
func (a *ahead) start(events []store.Event, decode func(*store.Event) (now, prior any)) {
	if len(events) < aheadMin || runtime.GOMAXPROCS(0) == 1 {
		return
	}
	a.next.Store(0)
	a.done.Go(func() {
		_ = protect.Call(func() { // a transform of the user panics again for the handler
			for i := len(events) - 1; int64(i) > a.next.Load(); i-- {
				now, prior := decode(&events[i])
				a.decoded = append(a.decoded, now, prior)
			}
		})
	})
}

// passed says that the handler gets event i.
func (a *ahead) passed(i int) { a.next.Store(int64(i)) }

// stop waits until nothing is being decoded.
func (a *ahead) stop(events int) {
	a.passed(events)
	a.done.Wait()
	clear(a.decoded)
	a.decoded = a.decoded[:0]
}
