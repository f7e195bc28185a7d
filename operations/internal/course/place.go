package course

import (
	"fmt"
	"hash/maphash"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// Request is one request of one incarnation of an object.
type Request struct {
	uid       types.UID
	operation string
}

// RequestOf returns the present request of an operation.
func RequestOf(op *v1alpha1.Operation) Request { return Request{op.UID, op.EffectiveID()} }

var requestSeed = maphash.MakeSeed()

// Hash tells one request from another where there is no room for its names. It is not 0.
func (r Request) Hash() uint64 { return max(1, maphash.Comparable(requestSeed, r)) }

// Acceptance is what is known of when a request was accepted: after the version since, and at the latest at the version
// by.
type Acceptance struct {
	Request
	Since, By string // since may be empty: nothing is known
}

// Of tells whether it is about the present request of an operation.
func (a *Acceptance) Of(op *v1alpha1.Operation) bool { return a != nil && a.Request == RequestOf(op) }

// Before tells whether the request was accepted before something that was accepted at a version. It is false, with
// known, for what was picked up before there were places: its version is empty.
func (a *Acceptance) Before(version string) (is, known bool) {
	if version == "" {
		return false, true
	}
	if order, ok := resourceversion.Compare(a.By, version); !ok || order <= 0 {
		return ok, true // not ordered: no API server of ours
	}
	if a.Since == "" {
		return false, false
	}
	order, ok := resourceversion.Compare(a.Since, version)
	return false, ok && order >= 0
}

// Doubt is the question whether an operation was accepted before a lock.
type Doubt struct {
	Op, Lock *v1alpha1.Operation // shared, read-only
	At       string              // the place of lock
}

// Ordinary tells whether the first call of an operation needs no record of its own, as far as the operation is
// concerned.
func Ordinary(op *v1alpha1.Operation) bool {
	s := &op.Spec
	if s.Execution == v1alpha1.ExecutionParallel || len(s.WebhookIDs) == 0 || len(s.CompensateWebhookIDs) > 0 {
		return false
	}
	for range op.Locks() {
		return false
	}
	return true
}

// Entered tells whether the first call of an operation was recorded.
func Entered(op *v1alpha1.Operation) bool { return op.PickedUp() && len(op.Status.Webhooks) > 0 }

// Place is that of an operation among those that exclude each other. Until it is picked up any write moves it back,
// unless it is ordinary: see Executor.placeOf.
func Place(op *v1alpha1.Operation) string {
	if op.PickedUp() {
		return op.Status.AcceptedVersion
	}
	return op.ResourceVersion
}

// ComesBefore tells which of two operations was accepted first. One without a place was picked up before there were
// places.
func ComesBefore(a, b *v1alpha1.Operation) bool { return InOrder(a, Place(a), b, Place(b)) }

// InOrder is comesBefore for the places p and q.
func InOrder(a *v1alpha1.Operation, p string, b *v1alpha1.Operation, q string) bool {
	if p == "" || q == "" {
		return p == "" && (q != "" || a.Name < b.Name)
	}
	order, _ := resourceversion.Compare(p, q) // of no API server of ours: 0
	return order < 0 || order == 0 && strings.Compare(a.Name, b.Name) < 0
}

// Turn says whether an operation may make its first call. It may if nothing of this is set.
type Turn struct {
	// Behind is the operation that it comes after, if it was not behind that one before.
	Behind *Predecessor
	// Still is true when it is behind the same one as before.
	Still bool
	// Unknown is true while there may be one of which the store has not heard yet.
	Unknown bool
	// Doubt has to be settled before.
	Doubt *Doubt
}

// Predecessor is the last unfinished operation before another one among those that exclude it.
type Predecessor struct {
	Key      cache.Key
	Op       *v1alpha1.Operation // shared, read-only
	Resource v1alpha1.ResourceReference
}

// String says who it is and why it goes first.
func (p *Predecessor) String() string {
	return fmt.Sprintf("operation %s (%s) of %s/%s, because of %s/%s", p.Op.EffectiveID(), p.Op.Spec.OperationType,
		p.Op.Spec.ResourceType, p.Op.Spec.ResourceID, p.Resource.ResourceType, p.Resource.ResourceID)
}

// ClocksApart is by how much the clocks of API servers and executors may differ.
const ClocksApart = time.Minute

// ComesLater answers a doubt where the API server has forgotten: by whether the lock, of which now is the newest state,
// was entered, and by the times of servers and executors, which nobody else writes. Where times decide wrongly, an
// operation goes first that was accepted later. Never does one wait whose call is under way: that was begun when there
// was no lock.
func ComesLater(d *Doubt, now *v1alpha1.Operation) bool {
	if now != nil && RequestOf(now) == RequestOf(d.Lock) && Entered(now) {
		return true
	}
	op, lock := d.Op, d.Lock
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
	return earliest.After(latest.Add(ClocksApart))
}
