package executor

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/store"
)

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

// entered tells whether the first call of an operation was recorded.
func entered(op *v1alpha1.Operation) bool { return op.PickedUp() && len(op.Status.Webhooks) > 0 }

// place is that of an operation among those that exclude each other. Until it is picked up any write moves it back,
// unless it is ordinary: see Executor.placeOf.
func place(op *v1alpha1.Operation) string {
	if op.PickedUp() {
		return op.Status.AcceptedVersion
	}
	return op.ResourceVersion
}

// comesBefore tells which of two operations was accepted first. One without a place was picked up before there were
// places.
func comesBefore(a, b *v1alpha1.Operation) bool { return inOrder(a, place(a), b, place(b)) }

// inOrder is comesBefore for the places p and q.
func inOrder(a *v1alpha1.Operation, p string, b *v1alpha1.Operation, q string) bool {
	if p == "" || q == "" {
		return p == "" && (q != "" || a.Name < b.Name)
	}
	order, _ := resourceversion.Compare(p, q) // of no API server of ours: 0
	return order < 0 || order == 0 && strings.Compare(a.Name, b.Name) < 0
}

// turn says whether an operation may make its first call. It may if nothing of this is set.
type turn struct {
	// behind is the operation that it comes after, if it was not behind that one before.
	behind *predecessor
	// still is true when it is behind the same one as before.
	still bool
	// unknown is true while there may be one of which the store has not heard yet.
	unknown bool
	// doubt has to be settled before.
	doubt *doubt
}

// predecessor is the last unfinished operation before another one among those that exclude it.
type predecessor struct {
	key      store.Key
	op       *v1alpha1.Operation // shared, read-only
	resource v1alpha1.ResourceReference
}

// String says who it is and why it goes first.
func (p *predecessor) String() string {
	return fmt.Sprintf("operation %s (%s) of %s/%s, because of %s/%s", p.op.EffectiveID(), p.op.Spec.OperationType,
		p.op.Spec.ResourceType, p.op.Spec.ResourceID, p.resource.ResourceType, p.resource.ResourceID)
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
