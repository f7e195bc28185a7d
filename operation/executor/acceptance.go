package executor

import (
	"context"
	"fmt"
	"hash/maphash"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/store"
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

// request is one request of one incarnation of an object.
type request struct {
	uid       types.UID
	operation string
}

// requestOf returns the present request of an operation.
func requestOf(op *v1alpha1.Operation) request { return request{op.UID, op.EffectiveID()} }

var requestSeed = maphash.MakeSeed()

// hash tells one request from another where there is no room for its names. It is not 0.
func (r request) hash() uint64 { return max(1, maphash.Comparable(requestSeed, r)) }

// acceptance is what is known of when a request was accepted: after the version since, and at the latest at the version
// by.
type acceptance struct {
	request
	since, by string // since may be empty: nothing is known
}

// of tells whether it is about the present request of an operation.
func (a *acceptance) of(op *v1alpha1.Operation) bool { return a != nil && a.request == requestOf(op) }

// before tells whether the request was accepted before something that was accepted at a version. It is false, with
// known, for what was picked up before there were places: its version is empty.
func (a *acceptance) before(version string) (is, known bool) {
	if version == "" {
		return false, true
	}
	if order, ok := resourceversion.Compare(a.by, version); !ok || order <= 0 {
		return ok, true // not ordered: no API server of ours
	}
	if a.since == "" {
		return false, false
	}
	order, ok := resourceversion.Compare(a.since, version)
	return false, ok && order >= 0
}

// doubt is the question whether an operation was accepted before a lock.
type doubt struct {
	op, lock *v1alpha1.Operation // shared, read-only
	at       string              // the place of lock
}

// ordinary tells whether the first call of an operation needs no record of its own, as far as the operation is
// concerned.
func ordinary(op *v1alpha1.Operation) bool {
	s := &op.Spec
	if s.Execution == v1alpha1.ExecutionParallel || len(s.WebhookIDs) == 0 || len(s.CompensateWebhookIDs) > 0 {
		return false
	}
	for range op.Locks() {
		return false
	}
	return true
}

// accept notes when the present request of an operation was accepted, unless that is known better.
func (e *Executor) accept(r *run, op *v1alpha1.Operation) {
	if !ordinary(op) {
		return
	}
	e.mu.Lock()
	known := r.accepted.of(op)
	if !known {
		r.accepted = &acceptance{request: requestOf(op), by: op.ResourceVersion}
	}
	e.mu.Unlock()
	if !known {
		e.moveLine(r.key) // there may be a lock that waits for that
	}
}

// accepted returns what is known of when an operation that was not picked up yet was accepted. It is false until its
// run has looked at it.
func (e *Executor) accepted(op *v1alpha1.Operation) (acceptance, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.live[op.Namespace][op.Name]
	if r == nil || !r.accepted.of(op) {
		return acceptance{}, false
	}
	return *r.accepted, true
}

// placeOf returns the place that an operation gets when it is picked up.
func (e *Executor) placeOf(op *v1alpha1.Operation) string {
	if ordinary(op) {
		if a, ok := e.accepted(op); ok {
			return a.by
		}
	}
	return op.ResourceVersion
}

// goesFirst tells whether other, of which the store tells and which excludes op and has not ended, goes first. recorded
// says that op was picked up, and not only in memory. A doubt without a place cannot be settled: the run of the
// operation has not looked at it yet.
func (e *Executor) goesFirst(other, op *v1alpha1.Operation, recorded bool) (bool, *doubt) {
	switch {
	case entered(other):
		return true, nil
	case !other.PickedUp() && ordinary(other):
		a, ok := e.accepted(other)
		if !ok {
			return false, &doubt{op: other}
		}
		if is, known := a.before(place(op)); known {
			return is, nil
		}
		return false, &doubt{op: other, lock: op, at: place(op)}
	case !recorded && ordinary(op):
		a, ok := e.accepted(op)
		if !ok { // its run is over
			return false, &doubt{op: op}
		}
		if is, known := a.before(place(other)); known {
			return !is, nil
		}
		return false, &doubt{op: op, lock: other, at: place(other)}
	default:
		return comesBefore(other, op), nil
	}
}

// settleDoubt asks the API server.
func (e *Executor) settleDoubt(ctx context.Context, d *doubt) error {
	list := &v1alpha1.OperationList{}
	answer, err := call.Do(ctx, e.calls, call.Request{
		Verb: call.VerbList, Namespace: d.op.Namespace,
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation,
		Query: url.Values{
			"fieldSelector":        {"metadata.name=" + d.op.Name},
			"resourceVersion":      {d.at},
			"resourceVersionMatch": {string(metav1.ResourceVersionMatchExact)},
		},
	}, e.policy)
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err): // it was minutes ago
		lock, err := e.get(ctx, store.Key{Namespace: d.lock.Namespace, Name: d.lock.Name})
		if err == nil {
			e.learn(d, nil, !comesLater(d, lock))
		}
		return err
	case err == nil:
		err = answer.Into(list)
	}
	if err != nil {
		return fmt.Errorf("cannot tell which of two operations was accepted first: %w", err)
	}
	for i := range list.Items {
		if was := &list.Items[i]; was.UID == d.op.UID && was.EffectiveID() == d.op.EffectiveID() {
			e.learn(d, was, true)
			return nil
		}
	}
	e.learn(d, nil, false)
	return nil
}

// learn notes the answer to a doubt. was is the operation as it was at that version, nil if that is not known.
func (e *Executor) learn(d *doubt, was *v1alpha1.Operation, before bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.live[d.op.Namespace][d.op.Name]
	switch {
	case r == nil || !r.accepted.of(d.op):
	case was != nil:
		r.accepted.by = was.ResourceVersion
	case before:
		r.accepted.by = d.at
	default:
		r.accepted.since = d.at
	}
}

// clocksApart is by how much the clocks of API servers and executors may differ.
const clocksApart = time.Minute

// comesLater answers a doubt where the API server has forgotten: by whether the lock, of which now is the newest state,
// was entered, and by the times of servers and executors, which nobody else writes. Where times decide wrongly, an
// operation goes first that was accepted later. Never does one wait whose call is under way: that was begun when there
// was no lock.
func comesLater(d *doubt, now *v1alpha1.Operation) bool {
	if now != nil && requestOf(now) == requestOf(d.lock) && entered(now) {
		return true
	}
	op, lock := d.op, d.lock
	earliest, latest := op.CreationTimestamp.Time, lock.CreationTimestamp.Time
	if at := op.Status.FinishedAt; at != nil && op.Status.OperationID != op.EffectiveID() { // of the request before
		earliest = at.Time
	}
	switch {
	case lock.PickedUp() && lock.Status.InitializedAt != nil:
		latest = lock.Status.InitializedAt.Time
	case lock.Status.OperationID != "": // when the spec was replaced nobody knows
		return false
	}
	return earliest.After(latest.Add(clocksApart))
}

// lockersOf is the name under which indexLocks has all unfinished operations of a namespace that lock anything.
func lockersOf(namespace string) string { return namespace + "/" }

// nobodyLocks tells whether no unfinished operation of a namespace locks anything.
func nobodyLocks(namespace string, now store.Snapshot) bool {
	for range now.Index(indexLocks, lockersOf(namespace)) {
		return false
	}
	return true
}
