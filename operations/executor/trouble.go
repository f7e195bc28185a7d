package executor

import (
	"cmp"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
)

// trouble describes failing requests of a run to the API server, or repeated conflicts. Executor.mu guards it. It is
// removed when the run reaches a wait or its end without an error.
type trouble struct {
	since, until time.Time // until: the next try
	err          error     // of the last request; nil: only conflicts
	tries        int
	conflicts    int // in a row
	conflict     error
}

// storm is the number of conflicts in a row that counts as a cause.
const storm = 3

// troubleOf returns the trouble of a run, and creates it if needed. The caller holds mu.
func (e *Executor) troubleOf(r *run) *trouble {
	t := e.troubles[r]
	if t == nil {
		t = &trouble{since: e.now()}
		e.troubles[r] = t
	}
	if r.work == nil {
		r.work = &work{}
	}
	r.troubled = true
	return t
}

// suffers records that a request of a run has failed, and the time of the next try.
func (e *Executor) suffers(r *run, err error, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.troubleOf(r)
	t.err, t.until, t.tries = err, until, int(r.tries)
}

// contested records a write conflict of a run.
func (e *Executor) contested(r *run, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.troubleOf(r)
	t.conflicts, t.conflict = t.conflicts+1, err
}

// recovered removes the trouble of a run.
func (e *Executor) recovered(r *run) {
	if !r.troubled {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.troubled = false
	delete(e.troubles, r)
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
	told, _ := call.Why(t.err)
	c, forbidden := causes.ForbiddenText(t.err.Error())
	switch {
	case forbidden:
	case errors.Is(t.err, errOutdatedCRD):
		c = causes.Outdated(t.err.Error(), t.since)
	case errors.Is(t.err, webhook.ErrFenced):
		c = why.Cause{
			Type: why.NotLeading, Message: "this replica is not certain that no other one works on it, and does nothing",
			Advice: "It goes on by itself as soon as the lease is renewed, here or elsewhere.",
		}
	case apierrors.IsConflict(t.err):
		c = conflictCause(t.err, t)
	case told.Type == why.Forbidden, told.Type == why.RetryAfter:
		if c, c.About = told, nil; c.Advice == "" {
			c.Advice = "Check the state of the API server and the log of the controller."
		}
	default:
		c = why.Cause{
			Type: why.BackOff, Message: "a request of the controller to the API server has failed and is made again at " +
				t.until.UTC().Format(time.RFC3339),
			Advice: cmp.Or(told.Advice, "Check the state of the API server and the log of the controller."),
		}
	}
	if c.Evidence == nil {
		c.Evidence = make(map[string]string)
	}
	c.Evidence["error"] = t.err.Error()
	c.Evidence["tries"] = itoa(t.tries)
	c.Since, c.Until = t.since, t.until
	return append(all, c)
}

func conflictCause(err error, t *trouble) why.Cause {
	return why.Cause{
		Type: why.Conflict, Message: "another writer changes the operation again and again, before the controller can", Since: t.since,
		Evidence: map[string]string{"conflicts": itoa(t.conflicts), "error": err.Error()},
		Advice:   "Find the writer in its managedFields, and stop it.",
	}
}
