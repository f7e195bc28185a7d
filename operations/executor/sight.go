package executor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// Sight. What belongs to the flow of a run may be looked at by others while that is parked: between settle and the next
// look, under Executor.mu, which the flow takes at both ends. So nothing is copied and no lock is taken for them on the
// way of an operation; who comes while the flow works waits for its end, for a moment.

// patience is how long somebody who asks waits for a flow that works.
const patience = 200 * time.Millisecond

// sight is what there is to see of a run.
type sight struct {
	namespace   string
	live, works bool // there is a run; its flow works now, and has not shown what follows
	draining    bool // no call is begun any more
	trouble     *trouble
	behind      *store.Key // the operation that it waits for, or stale
	op          *v1alpha1.Operation
	began       map[record.Target]time.Time // calls under way
	refused     map[record.Target]refusal
	short       bool
	later       map[record.Target]time.Time // polls that are due later than the status says
	place       string                      // that has to be known before its first call; empty: no matter
}

// isLooking tells whether the flow of a run works; the caller holds Executor.mu.
func (r *run) isLooking() bool { return r.work != nil && r.looking }

// conceal has nobody look at what belongs to the flow of a run that has ended.
func (e *Executor) conceal(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.looking = true
}

// seen lets others look at a run; the caller holds mu.
func (e *Executor) seen(r *run) {
	if r.work != nil {
		r.looking = false
	}
	if asked := e.asking[r]; asked != nil {
		close(asked)
		delete(e.asking, r)
	}
}

// see looks at the run of an operation. If its flow works, it waits for that to park, as long as its patience and ctx
// last.
func (e *Executor) see(ctx context.Context, key store.Key) sight {
	e.mu.Lock()
	r := e.live[key.Namespace][key.Name]
	if r != nil && r.isLooking() {
		asked := e.asking[r]
		if asked == nil {
			asked = make(chan struct{})
			e.asking[r] = asked
		}
		e.mu.Unlock()
		timer := time.NewTimer(patience)
		select {
		case <-asked:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		e.mu.Lock()
		r = e.live[key.Namespace][key.Name]
	}
	defer e.mu.Unlock()
	s := sight{namespace: key.Namespace, draining: e.tenureLocked(key.Namespace) != nil && e.drain.begun}
	if r == nil {
		return s
	}
	s.live, s.works = true, r.isLooking()
	if t := e.troubles[r]; t != nil {
		s.trouble = new(*t)
	}
	if r.line != nil {
		s.behind = new(r.line.key)
	}
	if s.works {
		return s
	}
	if s.later = maps.Clone(r.later); r.work == nil {
		return s
	}
	if !r.entered {
		s.place = r.place
	}
	s.short, s.refused = r.short, maps.Clone(r.refused)
	s.began = make(map[record.Target]time.Time, len(r.flying))
	for t, f := range r.flying {
		s.began[t] = f.since
	}
	if r.op != nil {
		s.op = shown(r.op)
	}
	return s
}

// shown is a copy of an operation in the parts that a run changes; it shares the others, which nobody does.
func shown(op *v1alpha1.Operation) *v1alpha1.Operation {
	c := *op
	s := &c.Status
	s.Webhooks, s.Compensations = slices.Clone(s.Webhooks), slices.Clone(s.Compensations)
	s.Conditions = slices.Clone(s.Conditions)
	if s.Notification != nil {
		s.Notification = new(*s.Notification)
	}
	return &c
}
