package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/binding"
	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// reconciliation is one call of the reconciler for one object.
type reconciliation struct {
	store   *cache.Store // of the primary; the reconciliation may outlive the controller's run
	key     Key
	term    context.Context //nolint:containedctx // context of the leadership in which it runs
	slot    int             // slot of its object
	facts   facts           // of the object; written under the lock of the scheduler
	why     reasons
	covered reasons // later events of the state in facts, dropped as known; written under the lock of the scheduler
	begun   time.Time
	cancel  context.CancelCauseFunc
	stopped atomic.Pointer[error] // why its requests are refused
	attempt int
	last    error
	span    trace.Span      // nil: none
	waiting binding.Waiting // the request that is being retried

	goroutine goroutine.ID // the goroutine that runs it

	item       *item           // belongs to the scheduler, as do prev and next
	prev, next *reconciliation // in the list of running reconciliations
}

// stop cancels the context of a reconciliation and refuses its further requests.
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

// runs is the list of running reconciliations, oldest first. The zero value is empty. It has no lock.
type runs struct{ first, last *reconciliation }

func (l *runs) add(r *reconciliation) {
	if r.prev = l.last; r.prev == nil {
		l.first = r
	} else {
		r.prev.next = r
	}
	l.last = r
}

func (l *runs) remove(r *reconciliation) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// keptSuccesses is the number of successes that are remembered. The queue has no item for an idle object, so only
// recent successes are known.
const keptSuccesses = 256

// history is a ring of the last successes. The zero value is empty. It has no lock.
type history struct {
	ring []success
	next int
}

type success struct {
	key Key
	uid types.UID
	at  time.Time
}

func (h *history) add(k Key, uid types.UID, at time.Time) {
	s := success{k, uid, at}
	if len(h.ring) < keptSuccesses {
		h.ring = append(h.ring, s)
		return
	}
	h.ring[h.next] = s
	h.next = (h.next + 1) % keptSuccesses
}

// last returns when an object was last reconciled; zero if that is not remembered.
func (h *history) last(k Key) (at time.Time) {
	for _, s := range h.ring {
		if s.key == k && s.at.After(at) {
			at = s.at
		}
	}
	return at
}
