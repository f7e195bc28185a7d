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

// Sight. Other goroutines may read the fields of a flow while it is parked: between settle and the next look, under
// Executor.mu. The flow locks Executor.mu at both ends. So an operation pays neither a copy nor a further lock for
// readers. A reader that comes while the flow works waits a moment for it to park.

// patience is how long a reader waits for a working flow to park.
const patience = 200 * time.Millisecond

// sight is a snapshot of a run for readers.
type sight struct {
	namespace   string
	live, works bool // a run exists; its flow is working, so the fields from op on are not set
	draining    bool // calls are not started any more
	trouble     *trouble
	behind      *store.Key // the operation that it waits for, or stale
	op          *v1alpha1.Operation
	began       map[record.Target]time.Time // by call under way: its start
	refused     map[record.Target]refusal
	short       bool
	later       map[record.Target]time.Time // polls that are due later than the status says
	place       string                      // the version that the store must cover before the first call; empty: any
}

// isLooking reports whether the flow of a run is working. The caller holds Executor.mu.
func (r *run) isLooking() bool { return r.work != nil && r.looking }

// conceal hides a run that has ended from readers.
func (e *Executor) conceal(r *run) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.looking = true
}

// seen lets readers see a run, and wakes those that wait. The caller holds mu.
func (e *Executor) seen(r *run) {
	if r.work != nil {
		r.looking = false
	}
	if asked := e.asking[r]; asked != nil {
		close(asked)
		delete(e.asking, r)
	}
}

// see returns a snapshot of the run of an operation. If its flow is working, it waits for up to patience, or until
// ctx ends.
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
	s := sight{namespace: key.Namespace, draining: e.holds(key.Namespace) && e.drain.begun}
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

// shown returns a copy of an operation. It copies the parts that a run changes, and shares the others.
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
