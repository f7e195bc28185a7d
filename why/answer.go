package why

import (
	"cmp"
	"context"
	"slices"
)

// Explainer knows causes. Why returns those of one object, the most direct first, and none where it knows nothing of it
// or sees nothing wrong. It does not block for longer than ctx, and is called from several goroutines.
type Explainer interface {
	Why(ctx context.Context, of Object) []Cause
}

// Func is an Explainer that is a function.
type Func func(ctx context.Context, of Object) []Cause

// Why calls the function.
func (f Func) Why(ctx context.Context, of Object) []Cause { return f(ctx, of) }

// Answer says why an object does not move on.
type Answer struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Stuck is false if there is no cause but Ended, and those that are progress.
	Stuck  bool    `json:"stuck"`
	Causes []Cause `json:"causes"` // the most direct first; never nil
}

// Ask asks all of them, in their order. What is told twice is there once.
func Ask(ctx context.Context, of Object, explainers ...Explainer) Answer {
	var causes []Cause
	for _, e := range explainers {
		causes = append(causes, e.Why(ctx, of)...)
	}
	return NewAnswer(of, causes)
}

// NewAnswer makes an answer of causes, by how direct they are: what is about the object itself before what is about
// those that it waits for (Cause.Depth), what is closer to its next step first, and in the order given where that is
// alike. Of causes with the same type and message the most direct one is told. One without a type is Parked, one that
// does not say what to do gets the advice that is usual for its type, and texts of more than 2 KiB are cut.
func NewAnswer(of Object, causes []Cause) Answer {
	a := Answer{Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, Causes: []Cause{}}
	all := make([]Cause, 0, len(causes))
	for _, c := range causes {
		all = append(all, c.complete())
	}
	slices.SortStableFunc(all, func(x, y Cause) int {
		return cmp.Or(cmp.Compare(x.Depth, y.Depth), rank(x.Type)-rank(y.Type))
	})
	for _, c := range all {
		a.Stuck = a.Stuck || c.Type != Ended && !c.Progress
		if !slices.ContainsFunc(a.Causes, func(had Cause) bool { return had.Type == c.Type && had.Message == c.Message }) {
			a.Causes = append(a.Causes, c)
		}
	}
	return a
}

// order is from what decides all else to what merely follows. Types of programs stand before all: who declares one knows
// most.
var order = []Type{
	Ended, NotSelected, Quarantined, HeldBy, NotLeading, DeadlinePassed, ForeignFinalizer, LockHeld, WebhookMissing, NotReleased,
	Forbidden, CircuitOpen, RetryAfter, RateLimited, Conflict, SourceStale, QueuedBehind, BackOff, Parked, Hidden,
}

func rank(t Type) int { return slices.Index(order, t) }
