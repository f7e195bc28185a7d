package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
)

type itemState uint8

const (
	idle itemState = iota
	ready
	waiting
	running
)

// priority is the priority of a ready key.
type priority uint8

const (
	high priority = iota // a change
	low                  // initial objects and intervals: they yield to live changes, but do not starve
)

// item is the state of one object in the controller: its queue state, the reasons, and the relevant history.
type item struct {
	key        Key
	state      itemState
	prio       priority
	reasons    reasons
	due        time.Time  // while waiting
	readySince time.Time  // while ready: since when
	dueFor     ReasonType // while waiting: Scheduled, Retried, or "" for the rate limit
	heapAt     int
	current    *reconciliation // while running
	fail       *failure        // the last attempt failed
	rate       *rate           // of its reconciliations; nil before the first one, or without a limit
	seen       *facts          // while running: the state in the last event about the object itself
	slot       int             // 0 unless replicas share the objects
	left       bool            // while running: its slot has left; do not reconcile again

	requeues requeues
}

// facts are the state of the object that a reconciliation saw. A failure, and a run of requeues, apply only to equal
// facts.
type facts struct {
	uid      types.UID
	gen      int64
	version  string
	deleting bool
}

func factsOf(r *cache.Record) facts {
	return facts{r.UID(), r.Generation(), r.Version(), r.Deleting()}
}

// differs reports whether there may be new work: another incarnation, the start of a deletion, or another spec. Kinds
// without a generation differ with every version.
func (f facts) differs(now facts) bool {
	if f.uid != now.uid || f.deleting != now.deleting || f.gen != now.gen {
		return true
	}
	return f.gen == 0 && f.version != now.version
}

// started counts the start of a reconciliation for the rate limit.
func (it *item) started(at time.Time, limit rate) {
	if !limit.limits() {
		return
	}
	if it.rate == nil {
		own := limit // so that limit itself is not moved to the heap
		it.rate = &own
	}
	it.rate.record(at)
}
