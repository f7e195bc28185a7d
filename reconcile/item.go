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

// Higher ones go first, but lower ones do not starve.
const (
	urgent priority = iota // of an object with a positive rank
	high                   // a change
	low                    // initial objects and intervals, and objects with a negative rank
	priorities
)

// rank is the sign of what the function of Priority returned for an object: 0 without such a function.
type rank int8

// applied returns the priority of an object of this rank that would have priority p without one.
func (r rank) applied(p priority) priority {
	switch {
	case r > 0:
		return urgent
	case r < 0:
		return low
	}
	return p
}

// item is the state of one object in the controller: its queue state, the reasons, and the relevant history.
type item struct {
	key        Key
	state      itemState
	prio       priority
	rank       rank
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
