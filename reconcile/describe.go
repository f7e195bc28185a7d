package reconcile

import (
	"errors"
	"slices"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/why"
)

// Bounds of the texts in an inspect.Failure, in bytes.
const (
	maxErrorShown = 1 << 10
	maxStackShown = 8 << 10
)

// inspection describes a controller, and explains its work on an object. It reads snapshots of the parts and has no
// state.
type inspection struct {
	name, place, cluster string
	declared             *declaration
	client               *client.Client
	leader               Leadership // nil: the process always leads
	finalizer            string     // "" if the controller adds none
	lifetime             *lifetime
	intake               *intake
	scheduler            *scheduler
	// fibers returns why the fiber of an object does not end, and whether there is one.
	fibers func(k Key) (causes []why.Cause, works bool)
	flows  func() int
}

// describe describes the controller, with at most limit of the failures for which pick returns true. A negative limit
// means all.
func (n *inspection) describe(limit int, pick func(Key, Class) bool) inspect.Controller {
	if limit == 0 {
		pick = nil
	}
	// In this order, the snapshots never show a state that did not exist: work starts after the first lists, and the
	// controller is stopping before its work and its watches end.
	watches := n.intake.snapshot()
	work := n.scheduler.workload(pick)
	phase := n.lifetime.phase()
	kind, title := n.declared.reconciled()
	d := inspect.Controller{
		Cluster: n.cluster, Name: n.name, At: n.place, Kind: title, Of: kind.GroupKind(), Counts: work.Counts,
		State:  stateOf(phase, watches, work.leads || n.leader == nil),
		Oldest: work.oldest, Working: work.working, BlockedSince: work.blockedSince,
		Failures: describeFailures(work.failing, limit),
	}
	d.Flows = n.flows()
	switch {
	case phase.problem == nil:
	case d.State == inspect.StateAbsent:
		d.WaitsFor = []string{phase.problem.Error()}
	default:
		d.Error = phase.problem.Error()
	}
	switch d.State {
	case inspect.StateListing:
		for _, s := range watches.unlisted {
			for _, why := range s.handle.Unlisted() {
				d.WaitsFor = append(d.WaitsFor, s.watch.name+": "+why)
			}
		}
	case inspect.StateStandby:
		leader, err := leaderOf(n.leader)
		if d.Leader = leader; err != nil {
			d.Error = err.Error()
		}
	}
	return d
}

// describeFailures describes the oldest failures, at most limit. A negative limit means all.
func describeFailures(all []failingObject, limit int) []inspect.Failure {
	slices.SortFunc(all, func(a, b failingObject) int { return byAge(*a.Failure, *b.Failure) })
	if limit >= 0 && len(all) > limit {
		all = all[:limit]
	}
	out := []inspect.Failure{}
	for _, f := range all {
		one := inspect.Failure{
			Key: f.Key.String(), Class: string(f.Class), Attempts: f.Attempts, Since: f.Since, At: f.At,
			Doing: stateNames[f.state], Error: truncate(f.Err.(*Error).Err.Error(), maxErrorShown),
		}
		if _, stack, ok := asPanic(f.Err); ok {
			one.Stack = truncate(string(stack), maxStackShown)
		}
		if !f.Next.IsZero() {
			one.Next = &f.Next
		}
		out = append(out, one)
	}
	return out
}

var stateNames = map[itemState]string{idle: "rests", ready: "waits for a worker", waiting: "waits", running: "runs"}

// stateOf returns the state of a controller. leads reports whether reconciliations may start, as far as the leadership
// decides.
func stateOf(p phase, watches intakeState, leads bool) inspect.State {
	switch {
	case p.ended:
		return inspect.StateStopped
	case p.problem != nil:
		if _, absent := errors.AsType[*absentError](p.problem); absent {
			return inspect.StateAbsent
		}
		return inspect.StateBlocked
	case !p.running:
		return inspect.StateNew
	case p.stopping:
		return inspect.StateStopping
	case watches.primary == nil || !watches.synced:
		return inspect.StateListing
	case !leads:
		return inspect.StateStandby
	}
	return inspect.StateRunning
}
