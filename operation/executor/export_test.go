package executor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation/internal/course"
	"github.com/fairlead-io/fairlead/operation/internal/share"
)

// Blames is blames, FirstAttempt firstAttempt, and Repeats repeats.
var (
	Blames       = blames
	FirstAttempt = course.FirstAttempt
	Repeats      = repeats
)

// Run is run.
type Run = run

// Spend has a namespace use up writes to the API server.
func (e *Executor) Spend(namespace string, writes float64) {
	e.writes.Charge(namespace, share.Price{Count: writes})
}

// Runs returns how many runs there are, and how many of them have anything to work with.
func (e *Executor) Runs() (all, working int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, space := range e.live {
		for _, r := range space {
			if all++; r.work != nil {
				working++
			}
		}
	}
	return all, working
}

// Kept returns what a run keeps that has had a call under way and a turn refused, both over, with changes that are not
// written or without.
func Kept(unsaved bool) (what string) {
	e := &Executor{}
	r := &run{
		later: map[course.Target]time.Time{},
		work:  &work{flying: map[course.Target]*flight{}, refused: map[course.Target]refusal{}},
	}
	if unsaved {
		r.unsaved = []course.Change{func(*v1alpha1.Operation) {}}
	}
	e.settle(r)
	if r.later != nil {
		what += "polls "
	}
	if r.work == nil {
		return what
	}
	if r.flying != nil {
		what += "calls "
	}
	if r.refused != nil {
		what += "turns "
	}
	return what + "changes"
}

// Tenures describes the slots of an executor.
func (e *Executor) Tenures() (out string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for slot, t := range e.tenures {
		out += fmt.Sprintf("%d: begun %t, busy %d, leaving %t; ", slot, t.begun, t.busy, t.leaving != nil)
	}
	return out
}

// SpanAllocs is how many allocations it takes to look after the trace of an operation.
func (e *Executor) SpanAllocs(ctx context.Context, op *v1alpha1.Operation) float64 {
	r := &run{work: &work{op: op}}
	return testing.AllocsPerRun(100, func() {
		from, _ := e.follow(ctx, op)
		e.another(from, r)
		e.keepTrace(from, r)
		e.passOn(from, op)
	})
}
