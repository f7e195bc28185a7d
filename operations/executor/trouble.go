package executor

import (
	"cmp"
	"errors"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
)

// trouble describes failing requests of a run to the API server, or repeated conflicts.
type trouble struct {
	since, until time.Time // until: the next try
	err          error     // of the last request; nil: only conflicts
	tries        int
	conflicts    int // in a row
	conflict     error
}

// storm is the number of conflicts in a row that counts as a cause.
const storm = 3

// troubles has the operations with failing requests to the API server. An operation is known by the flag that wakes it.
// Its entry is removed when it reaches a wait or its end without an error. troubles is safe for concurrent use. Its
// lock is a leaf lock.
type troubles struct {
	mu sync.Mutex
	of map[*news]*trouble
}

// get returns a copy of the trouble of an operation; nil if it has none.
func (t *troubles) get(n *news) *trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.of[n]
	if known == nil {
		return nil
	}
	return new(*known)
}

// failed records that a request of an operation has failed for the given number of times in a row, and the time of the
// next try.
func (t *troubles) failed(n *news, err error, tries int, now, until time.Time) {
	t.update(n, now, func(known *trouble) { known.err, known.until, known.tries = err, until, tries })
}

// conflicted records a write conflict of an operation.
func (t *troubles) conflicted(n *news, err error, now time.Time) {
	t.update(n, now, func(known *trouble) { known.conflicts, known.conflict = known.conflicts+1, err })
}

func (t *troubles) update(n *news, now time.Time, f func(*trouble)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.of[n]
	if known == nil {
		known = &trouble{since: now}
		if t.of == nil {
			t.of = make(map[*news]*trouble)
		}
		t.of[n] = known
	}
	f(known)
}

// remove forgets the trouble of an operation.
func (t *troubles) remove(n *news) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.of, n)
}

// causes returns the causes that explain the trouble.
func (t *trouble) causes() (all []why.Cause) {
	if t.conflicts >= storm {
		all = append(all, conflictCause(t.conflict, t))
	}
	if t.err == nil {
		return all
	}
	if known := why.Of(t.err); len(known) > 0 {
		return append(all, known...)
	}
	explained, _ := call.Why(t.err)
	c, forbidden := causes.ForbiddenText(t.err.Error())
	switch {
	case forbidden:
	case errors.Is(t.err, errOutdatedCRD):
		c = causes.Outdated(t.err.Error(), t.since)
	case errors.Is(t.err, webhook.ErrFenced):
		c = why.Cause{
			Type: why.NotLeading, Message: "this replica is not certain that no other one works on it, and does nothing",
			Advice: "No action is needed. Work continues when this process or another one has renewed the lease.",
		}
	case apierrors.IsConflict(t.err):
		c = conflictCause(t.err, t)
	case explained.Type == why.Forbidden, explained.Type == why.RetryAfter:
		if c, c.About = explained, nil; c.Advice == "" {
			c.Advice = "Check the state of the API server and the log of the controller."
		}
	default:
		c = why.Cause{
			Type: why.BackOff, Message: "a request of the controller to the API server has failed and is made again at " +
				t.until.UTC().Format(time.RFC3339),
			Advice: cmp.Or(explained.Advice, "Check the state of the API server and the log of the controller."),
		}
	}
	if c.Evidence == nil {
		c.Evidence = make(map[string]string)
	}
	c.Evidence["error"] = t.err.Error()
	c.Evidence["tries"] = strconv.Itoa(t.tries)
	c.Since, c.Until = t.since, t.until
	return append(all, c)
}

func conflictCause(err error, t *trouble) why.Cause {
	return why.Cause{
		Type: why.Conflict, Since: t.since,
		Message:  "another writer changes the operation again and again, before the controller can",
		Evidence: map[string]string{"conflicts": strconv.Itoa(t.conflicts), "error": err.Error()},
		Advice:   "Find the writer in its managedFields, and stop it.",
	}
}
