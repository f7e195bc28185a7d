package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/goroutine"
)

type itemState uint8

const (
	idle itemState = iota
	ready
	waiting
	running
)

// priority of a ready key.
type priority uint8

const (
	high priority = iota // something changed
	low                  // initial objects, intervals: they can wait for live changes, but not for ever
)

// item is what the controller knows of one object: what it waits for, why, and what counts of its history.
type item struct {
	key     Key
	state   itemState
	prio    priority
	reasons reasons
	due     time.Time  // while waiting
	came    time.Time  // while ready: when it became that
	dueFor  ReasonType // Scheduled, Retried, or "" for the rate limit
	heapAt  int
	current *reconciliation // while running
	fail    *failure        // the last attempt failed
	rate    *rate           // of its reconciliations; nil before the first one, or without a limit
	seen    *facts          // while running: what the last event about the object itself showed
	slot    int             // where replicas share the objects
	left    bool            // while running: its slot has left, and nothing follows

	requeues int   // results in a row that asked for another reconciliation, and for no time
	requeued facts // what the last of them was about
}

// facts are what a reconciliation has seen of its object. A failure, and a run of requeues, count for these facts only.
type facts struct {
	uid      types.UID
	gen      int64
	version  string
	deleting bool
}

func factsOf(r *cache.Record) facts {
	return facts{r.UID(), r.Generation(), r.Version(), r.Deleting()}
}

// differs says whether there may be something new to do: another incarnation, a deletion that has begun, another spec.
// Kinds without a generation differ with every version.
func (f facts) differs(now facts) bool {
	if f.uid != now.uid || f.deleting != now.deleting || f.gen != now.gen {
		return true
	}
	return f.gen == 0 && f.version != now.version
}

// failure is what the failed attempts at an object have in common. While there is one, an event alone does not start
// the next attempt.
type failure struct {
	facts     facts
	attempts  int
	conflicts int
	class     Class
	err       error
	since     time.Time
	at        time.Time
}

// started notes the begin of a reconciliation for the rate limit.
func (it *item) started(at time.Time, limit rate) {
	if !limit.limits() {
		return
	}
	if it.rate == nil {
		own := limit // so that only this is allocated
		it.rate = &own
	}
	it.rate.take(at)
}

// reconciliation is one call of the reconciler for one object.
type reconciliation struct {
	store   *cache.Store // of the primary; the controller may have ended when the reconciliation does
	key     Key
	term    context.Context //nolint:containedctx // of the leadership in which it is made
	slot    int             // of its object
	over    chan struct{}   // closed when it has returned; made by those who wait
	facts   facts
	why     reasons
	begun   time.Time
	cancel  context.CancelCauseFunc
	stopped atomic.Pointer[error] // why it must send no more requests
	attempt int
	last    error
	span    trace.Span   // nil: none
	waiting call.Waiting // the request that is being tried again

	goroutine goroutine.ID // that runs it

	prev, next *reconciliation // those that run; guarded by Controller.mu
}

// stop ends the context of a reconciliation and refuses its further requests.
func (r *reconciliation) stop(cause error) {
	r.stopped.CompareAndSwap(nil, &cause)
	r.cancel(cause)
}

func (r *reconciliation) fence() error {
	if p := r.stopped.Load(); p != nil {
		return *p
	}
	return nil
}
