package executor

import (
	"maps"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// snapshot is the state of a run for readers.
type snapshot struct {
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

// isWorking reports whether the flow of a run is working. The caller holds the lock of runs.
func (r *run) isWorking() bool { return r.work != nil && r.working }

// describe adds the state of a parked run to a snapshot. The caller holds the lock of runs.
func (r *run) describe(s *snapshot) {
	if s.later = maps.Clone(r.later); r.work == nil {
		return
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
		s.op = copyShown(r.op)
	}
}

// copyShown returns a copy of an operation. It copies the parts that a run changes, and shares the others.
func copyShown(op *v1alpha1.Operation) *v1alpha1.Operation {
	c := *op
	s := &c.Status
	s.Webhooks, s.Compensations = slices.Clone(s.Webhooks), slices.Clone(s.Compensations)
	s.Conditions = slices.Clone(s.Conditions)
	if s.Notification != nil {
		s.Notification = new(*s.Notification)
	}
	return &c
}
