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

// Acceptance. The first call of an ordinary operation may be under way before any record of it (unrecorded.go). Its
// place among the operations that exclude each other must therefore be the version at which the request was accepted.
// That is the version of the creation, or of the replacement of the spec, and no later one. An object does not tell
// that version: a later write, of a label for example, gives it another one.
//
// An executor therefore knows an interval. It ends at the lowest version at which the request was seen. A lock may
// have been accepted within the interval. If the order of the two matters, the executor asks the API server for the
// state at the version of the lock. That answer is the same for every replica. So
//
//   - an operation whose call is under way comes before every lock that is accepted later. Later writes to it, and a
//     crash of its replica, do not change that;
//   - an operation that was accepted after a lock comes after it, whether or not an executor saw that happen.

// acceptances are the known intervals. The runs of operations hold them.
type acceptances interface {
	// acceptance returns the interval in which an operation was accepted that is not picked up yet. It returns false
	// until the run of the operation has looked at it.
	acceptance(op *v1alpha1.Operation) (course.Acceptance, bool)
	// narrow calls f with the acceptance of an operation, if it is known. f may change it.
	narrow(op *v1alpha1.Operation, f func(*course.Acceptance))
}

// history reads the states of operations from the API server.
type history struct {
	calls  *call.Client
	policy func(namespace string) call.Policy
	newest func(ctx context.Context, key store.Key) (*v1alpha1.Operation, error) // nil: it does not exist
}

// placeOf returns the place that an operation gets when it is picked up.
func (l *locks) placeOf(op *v1alpha1.Operation) string {
	if course.Ordinary(op) {
		if a, ok := l.accepted.acceptance(op); ok {
			return a.By
		}
	}
	return op.ResourceVersion
}

// goesFirst reports whether other goes before op. other comes from the store, excludes op and has not ended. recorded
// says that the stored status has picked up op. If the order is not known, it returns a doubt. A doubt without At
// cannot be settled yet: the run of the operation has not looked at it.
func (l *locks) goesFirst(other, op *v1alpha1.Operation, recorded bool) (bool, *course.Doubt) {
	switch {
	case course.Entered(other):
		return true, nil
	case !other.PickedUp() && course.Ordinary(other):
		a, ok := l.accepted.acceptance(other)
		if !ok {
			return false, &course.Doubt{Op: other}
		}
		if is, known := a.Before(course.Place(op)); known {
			return is, nil
		}
		return false, &course.Doubt{Op: other, Lock: op, At: course.Place(op)}
	case !recorded && course.Ordinary(op):
		a, ok := l.accepted.acceptance(op)
		if !ok { // its run has ended
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

// resolveDoubt asks the API server which of two operations was accepted first.
func (l *locks) resolveDoubt(ctx context.Context, d *course.Doubt) error {
	list := &v1alpha1.OperationList{}
	answer, err := call.Do(ctx, l.history.calls, call.Request{
		Verb: call.VerbList, Namespace: d.Op.Namespace,
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation,
		Query: url.Values{
			"fieldSelector":        {"metadata.name=" + d.Op.Name},
			"resourceVersion":      {d.At},
			"resourceVersionMatch": {string(metav1.ResourceVersionMatchExact)},
		},
	}, l.history.policy(d.Op.Namespace))
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err): // compacted in etcd, minutes ago
		lock, err := l.history.newest(ctx, store.Key{Namespace: d.Lock.Namespace, Name: d.Lock.Name})
		if err == nil {
			l.learn(d, nil, !course.ComesLater(d, lock))
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
			l.learn(d, was, true)
			return nil
		}
	}
	l.learn(d, nil, false)
	return nil
}

// learn records the answer to a doubt. was is the operation at the version of the lock; nil if that is not known.
func (l *locks) learn(d *course.Doubt, was *v1alpha1.Operation, before bool) {
	l.accepted.narrow(d.Op, func(a *course.Acceptance) {
		switch {
		case was != nil:
			a.By = was.ResourceVersion
		case before:
			a.By = d.At
		default:
			a.Since = d.At
		}
	})
}
