package executor

import (
	"context"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
)

// Acceptance. The first call of an ordinary operation may be under way while nothing of it is recorded (unrecorded.go),
// so its place among those that exclude each other must be the version at which it was created, or at which the spec
// was replaced, and no later one. An object does not tell that version: a label that is written afterwards gives it
// another one. What an executor knows is therefore an interval. It ends at the lowest version at which the request was
// seen. Where a lock was accepted within it, and the order of the two matters, the API server is asked what it had at
// the version of the lock: the truth, for every replica. So
//
//   - an operation whose call is under way comes before every lock that is accepted later, whatever is written to it
//     meanwhile, and for whoever goes on with it after a crash;
//   - one that was accepted after a lock comes after it, whether or not anybody saw that happen.

// accept notes when the present request of an operation was accepted, unless that is known better.
func (e *Executor) accept(r *run, op *v1alpha1.Operation) {
	if !course.Ordinary(op) {
		return
	}
	e.mu.Lock()
	known := r.accepted.Of(op)
	if !known {
		r.accepted = &course.Acceptance{Request: course.RequestOf(op), By: op.ResourceVersion}
	}
	e.mu.Unlock()
	if !known {
		e.moveLine(r.key) // there may be a lock that waits for that
	}
}

// accepted returns what is known of when an operation that was not picked up yet was accepted. It is false until its
// run has looked at it.
func (e *Executor) accepted(op *v1alpha1.Operation) (course.Acceptance, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.live[op.Namespace][op.Name]
	if r == nil || !r.accepted.Of(op) {
		return course.Acceptance{}, false
	}
	return *r.accepted, true
}

// placeOf returns the place that an operation gets when it is picked up.
func (e *Executor) placeOf(op *v1alpha1.Operation) string {
	if course.Ordinary(op) {
		if a, ok := e.accepted(op); ok {
			return a.By
		}
	}
	return op.ResourceVersion
}

// goesFirst tells whether other, of which the store tells and which excludes op and has not ended, goes first. recorded
// says that op was picked up, and not only in memory. A doubt without a place cannot be settled: the run of the
// operation has not looked at it yet.
func (e *Executor) goesFirst(other, op *v1alpha1.Operation, recorded bool) (bool, *course.Doubt) {
	switch {
	case course.Entered(other):
		return true, nil
	case !other.PickedUp() && course.Ordinary(other):
		a, ok := e.accepted(other)
		if !ok {
			return false, &course.Doubt{Op: other}
		}
		if is, known := a.Before(course.Place(op)); known {
			return is, nil
		}
		return false, &course.Doubt{Op: other, Lock: op, At: course.Place(op)}
	case !recorded && course.Ordinary(op):
		a, ok := e.accepted(op)
		if !ok { // its run is over
			return false, &course.Doubt{Op: op}
		}
		if is, known := a.Before(course.Place(other)); known {
			return !is, nil
		}
		return false, &course.Doubt{Op: op, Lock: other, At: course.Place(other)}
	default:
		return course.ComesBefore(other, op), nil
	}
}

// settleDoubt asks the API server.
func (e *Executor) settleDoubt(ctx context.Context, d *course.Doubt) error {
	list := &v1alpha1.OperationList{}
	answer, err := call.Do(ctx, e.calls, call.Request{
		Verb: call.VerbList, Namespace: d.Op.Namespace,
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation,
		Query: url.Values{
			"fieldSelector":        {"metadata.name=" + d.Op.Name},
			"resourceVersion":      {d.At},
			"resourceVersionMatch": {string(metav1.ResourceVersionMatchExact)},
		},
	}, e.policyOf(d.Op.Namespace))
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err): // it was minutes ago
		lock, err := e.get(ctx, store.Key{Namespace: d.Lock.Namespace, Name: d.Lock.Name})
		if err == nil {
			e.learn(d, nil, !course.ComesLater(d, lock))
		}
		return err
	case err == nil:
		err = answer.Into(list)
	}
	if err != nil {
		return fmt.Errorf("cannot tell which of two operations was accepted first: %w", err)
	}
	for i := range list.Items {
		if was := &list.Items[i]; was.UID == d.Op.UID && was.EffectiveID() == d.Op.EffectiveID() {
			e.learn(d, was, true)
			return nil
		}
	}
	e.learn(d, nil, false)
	return nil
}

// learn notes the answer to a doubt. was is the operation as it was at that version, nil if that is not known.
func (e *Executor) learn(d *course.Doubt, was *v1alpha1.Operation, before bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.live[d.Op.Namespace][d.Op.Name]
	switch {
	case r == nil || !r.accepted.Of(d.Op):
	case was != nil:
		r.accepted.By = was.ResourceVersion
	case before:
		r.accepted.By = d.At
	default:
		r.accepted.Since = d.At
	}
}
