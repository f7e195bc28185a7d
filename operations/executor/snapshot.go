package executor

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/why"
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

// firstCause returns the first cause by which the operation is stuck; empty if it is not. Only the flow calls it.
// behind says that it waits for another operation. It agrees with explainer.operation, but uses only what the flow
// knows when it parks. It reads no Webhook, since many operations may park after a change of one. It does not allocate
// for an operation without an error or a wait.
func (r *run) firstCause(behind bool, endpoints breakerStates, clock func() time.Time) why.Type {
	switch {
	case behind:
		return why.LockHeld
	case len(r.refused) == 0 && !r.short && !r.outdated && !ails(r.op):
		return ""
	}
	now := clock()
	known := causes.Known{
		Began: func(t record.Target) time.Time {
			if f := r.flying[t]; f != nil {
				return f.since
			}
			return time.Time{}
		},
		Next: func(t record.Target) time.Time { return r.later[t] },
	}
	all := without(causes.Of(r.op, known, now), why.LockHeld, why.RateLimited, causes.OutdatedCRD)
	if r.short {
		all = append(all, why.Cause{Type: why.RateLimited})
	}
	if r.outdated {
		all = append(all, why.Cause{Type: causes.OutdatedCRD})
	}
	for _, t := range causes.Due(r.op, known) {
		if cause := r.heldBack(t, endpoints, now); cause != "" {
			all = append(all, why.Cause{Type: cause})
		}
	}
	cause, _ := causes.Stuck(all)
	return cause
}

// heldBack returns the bound for which a due call waits; empty if there is none.
func (r *run) heldBack(t record.Target, endpoints breakerStates, now time.Time) why.Type {
	refused := r.refused[t]
	switch {
	case r.isFlying(t), refused.share == shareCompile && now.Sub(refused.since) < compileSoon:
		return ""
	case refused.share != "", refused.reason == webhook.WaitRate, refused.reason == webhook.WaitConcurrency:
		return why.RateLimited
	}
	en := record.Entry(&r.op.Status, t)
	if refused.reason != webhook.WaitBreaker && en == nil || en != nil && en.AwaitsCallback() {
		return ""
	}
	b := endpoints.Breaker(r.key.Namespace, t.ID)
	switch {
	case refused.reason == webhook.WaitBreaker && b.State != webhook.Closed:
		return why.CircuitOpen
	case b.State != webhook.Open || !b.Until.After(now), en.NextAttemptAt != nil && !en.NextAttemptAt.Time.Before(b.Until):
		return "" // the breaker lets calls pass before the call is due
	}
	return why.CircuitOpen
}

// ails reports whether the status of an operation shows an error or a wait, so that it may be stuck.
func ails(op *v1alpha1.Operation) bool {
	ready := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionReady)
	if ready != nil && ready.Message != "" {
		return true
	}
	failed := func(c v1alpha1.WebhookCallStatus) bool { return causes.LastError(&c) != "" }
	return slices.ContainsFunc(op.Status.Webhooks, failed) || slices.ContainsFunc(op.Status.Compensations, failed) ||
		op.Status.Notification != nil && failed(*op.Status.Notification)
}

// without returns the causes except those of some types.
func without(all []why.Cause, types ...why.Type) (rest []why.Cause) {
	for _, c := range all {
		keep := true
		for _, t := range types {
			keep = keep && c.Type != t
		}
		if keep {
			rest = append(rest, c)
		}
	}
	return rest
}
