package why

import (
	"cmp"
	"context"
	"slices"
)

// Explainer knows causes. Why returns the causes of one object, the most direct first. It returns none if it does not
// know the object or sees no problem. It returns when ctx ends, and must be safe for concurrent use.
type Explainer interface {
	Why(ctx context.Context, of Object) []Cause
}

// Func is a function that implements Explainer.
type Func func(ctx context.Context, of Object) []Cause

// Why calls f.
func (f Func) Why(ctx context.Context, of Object) []Cause { return f(ctx, of) }

// Answer says why an object makes no progress.
type Answer struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Stuck reports whether there is a cause other than Ended that is not progress.
	Stuck  bool    `json:"stuck"`
	Causes []Cause `json:"causes"` // the most direct first; never nil
}

// Ask calls the explainers in order and returns their causes, without duplicates, as NewAnswer orders them.
func Ask(ctx context.Context, of Object, explainers ...Explainer) Answer {
	var causes []Cause
	for _, e := range explainers {
		causes = append(causes, e.Why(ctx, of)...)
	}
	return NewAnswer(of, causes)
}

// NewAnswer returns an answer with the causes, the most direct first. Causes of the object itself precede causes of the
// objects that it waits for (Cause.Depth). Among those, the order follows the type: a cause that decides others
// precedes the causes that follow from it. Equal causes keep the given order.
//
// Of several causes with the same type and message, only the most direct remains. A cause without a type becomes
// Parked. A cause without advice gets the default advice of its type, unless it is progress. Texts of more than 2 KiB
// are truncated.
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

// order ranks the types: a type that decides others comes before those that follow from it. Types that programs define
// precede all of these, because they are more specific.
var order = []Type{
	Ended, NotSelected, Quarantined, HeldBy, NotLeading, DeadlinePassed, ForeignFinalizer, LockHeld, WebhookMissing,
	NotReleased,
	Forbidden, CircuitOpen, RetryAfter, RateLimited, Conflict, SourceStale, QueuedBehind, BackOff, Parked, Hidden,
}

func rank(t Type) int { return slices.Index(order, t) }
