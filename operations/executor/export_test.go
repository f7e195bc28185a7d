package executor

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Blames, FirstAttempt and Repeats export functions for tests.
var (
	Blames       = blames
	FirstAttempt = course.FirstAttempt
	Repeats      = repeats
)

// Run is the run of an operation.
type Run = run

// Spend uses up a namespace's share of writes to the API server.
func (e *Executor) Spend(namespace string, writes float64) {
	e.budget.Charge(namespace, fair.Price{Count: writes})
}

// Runs returns how many runs there are, and how many of them hold working data.
func (e *Executor) Runs() (all, working int) {
	e.runs.mu.Lock()
	defer e.runs.mu.Unlock()
	for _, space := range e.runs.live {
		for _, r := range space {
			if all++; r.work != nil {
				working++
			}
		}
	}
	return all, working
}

// Kept returns what a run retains after a call and a refused turn have ended. unsaved tells whether it has unwritten
// changes.
func Kept(unsaved bool) (what string) {
	steps := &stepper{runs: newRuns(nil)}
	r := &run{
		later: map[record.Target]time.Time{},
		work:  &work{flying: map[record.Target]*flight{}, refused: map[record.Target]refusal{}},
	}
	if unsaved {
		r.unsaved = []unsavedChange{{Change: func(*v1alpha1.Operation) {}}}
	}
	steps.park(r)
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
	for slot := range e.own.layout().Len() {
		keys, _ := e.runs.of(e.own.layout().Set(slot))
		out += fmt.Sprintf("%d: held %t, runs %d; ", slot, e.own.slots.Holds(slot), len(keys))
	}
	return out + "not begun: " + e.tenancy.gained.String()
}

// SpanAllocs returns how many allocations the trace of an operation takes.
func (e *Executor) SpanAllocs(ctx context.Context, op *v1alpha1.Operation) float64 {
	return testing.AllocsPerRun(100, func() {
		from, _ := e.spans.follow(ctx, op)
		e.spans.record(e.spans.next(from, op), op, course.Whole)
		e.spans.passOn(from, op)
		e.spans.showOutcome(from, op)
	})
}

// Remembered is a memory of attempts, apart from an executor.
type Remembered struct{ a attempts }

// Bounds of the remembered attempts.
const (
	MaxAttempts     = maxAttempts
	MaxAttemptBytes = maxAttemptBytes
)

// Note records a try of an operation.
func (m *Remembered) Note(key store.Key, operation, hook string, res webhook.Result) {
	f := &flight{target: record.Target{ID: hook}, operation: operation, since: time.Unix(1, 0)}
	m.a.record(key, f, false, time.Unix(2, 0), res)
}

// End records the end of an operation.
func (m *Remembered) End(key store.Key) { m.a.end(key) }

// Of returns the remembered attempts of an operation.
func (m *Remembered) Of(key store.Key, operation string) Attempts { return m.a.of(key, operation) }

// Ended returns how many ended operations are listed for eviction. An operation listed twice counts twice.
func (m *Remembered) Ended() int { return len(m.a.over) }

// Held returns how many operations are remembered, and their bytes: as counted, and as summed up again.
func (m *Remembered) Held() (operations, counted, real int) {
	for key, t := range m.a.all {
		real += attemptedSize + attemptSize*cap(t.last) + len(t.operation) + len(key.Namespace) + len(key.Name)
		names := map[string]bool{}
		for _, one := range t.last {
			names[one.ID] = true
		}
		for name := range names {
			real += len(name)
		}
	}
	return len(m.a.all), m.a.bytes, real
}

// FirstTryAllocs returns how many allocations an operation takes that ends with its first try, while others are
// remembered.
func FirstTryAllocs() float64 {
	m := &Remembered{}
	m.Note(store.Key{Name: "other"}, "o", "hook", webhook.Result{Verdict: webhook.Retry})
	f := &flight{target: record.Target{ID: "hook"}, operation: "fine", since: time.Unix(1, 0)}
	key, ended, res := store.Key{Namespace: "a", Name: "fine"}, time.Unix(2, 0), webhook.Result{Verdict: webhook.Succeeded}
	return testing.AllocsPerRun(100, func() {
		m.a.record(key, f, false, ended, res)
		m.a.end(key)
	})
}
