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

// Request identifies one request of one incarnation of an object.
type Request struct {
	uid       types.UID
	operation string
}

// RequestOf returns the present request of an operation.
func RequestOf(op *v1alpha1.Operation) Request { return Request{op.UID, op.EffectiveID()} }

var requestSeed = maphash.MakeSeed()

// Hash returns a hash of the request that is not 0.
func (r Request) Hash() uint64 { return max(1, maphash.Comparable(requestSeed, r)) }

// Acceptance bounds the version at which a request was accepted: after Since, and at By at the latest.
type Acceptance struct {
	Request
	Since, By string // Since may be empty if unknown
}

// Of reports whether the acceptance is about the present request of an operation.
func (a *Acceptance) Of(op *v1alpha1.Operation) bool { return a != nil && a.Request == RequestOf(op) }

// Before reports whether the request was accepted before the given version. It returns false, true for an empty
// version, which belongs to an operation from before places existed.
func (a *Acceptance) Before(version string) (is, known bool) {
	if version == "" {
		return false, true
	}
	if order, ok := resourceversion.Compare(a.By, version); !ok || order <= 0 {
		return ok, true // unordered versions do not come from a Kubernetes API server
	}
	if a.Since == "" {
		return false, false
	}
	order, ok := resourceversion.Compare(a.Since, version)
	return false, ok && order >= 0
}

// Doubt asks whether an operation was accepted before a lock.
type Doubt struct {
	Op, Lock *v1alpha1.Operation // shared, read-only
	At       string              // the place of lock
}

// Ordinary reports whether the spec allows an operation to make its first call without recording it first.
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

// Entered reports whether the first call of an operation was recorded.
func Entered(op *v1alpha1.Operation) bool { return op.PickedUp() && len(op.Status.Webhooks) > 0 }

// Place returns the position of an operation among those that exclude each other. Until it is picked up, any write
// moves it back, unless it is ordinary: see locks.placeOf in the executor.
func Place(op *v1alpha1.Operation) string {
	if op.PickedUp() {
		return op.Status.AcceptedVersion
	}
	return op.ResourceVersion
}

// ComesBefore reports whether a was accepted before b. An operation without a place was picked up before places existed
// and comes first.
func ComesBefore(a, b *v1alpha1.Operation) bool { return InOrder(a, Place(a), b, Place(b)) }

// InOrder is ComesBefore with the places p and q.
func InOrder(a *v1alpha1.Operation, p string, b *v1alpha1.Operation, q string) bool {
	if p == "" || q == "" {
		return p == "" && (q != "" || a.Name < b.Name)
	}
	order, _ := resourceversion.Compare(p, q) // 0 if the versions cannot be compared
	return order < 0 || order == 0 && strings.Compare(a.Name, b.Name) < 0
}

// Turn says whether an operation may make its first call. The zero value permits it.
type Turn struct {
	// Behind is the preceding operation, if it has changed.
	Behind *Predecessor
	// Still means that the preceding operation is the same as before.
	Still bool
	// Unknown means that the store may not have seen a preceding operation yet.
	Unknown bool
	// Doubt must be resolved first.
	Doubt *Doubt
}

// Predecessor is the last unfinished operation before another one among those that exclude it.
type Predecessor struct {
	Key      cache.Key
	Op       *v1alpha1.Operation // shared, read-only
	Resource v1alpha1.ResourceReference
}

// String names the operation and the contested resource.
func (p *Predecessor) String() string {
	return fmt.Sprintf("operation %s (%s) of %s/%s, because of %s/%s", p.Op.EffectiveID(), p.Op.Spec.OperationType,
		p.Op.Spec.ResourceType, p.Op.Spec.ResourceID, p.Resource.ResourceType, p.Resource.ResourceID)
}

// ClocksApart bounds the difference between the clocks of API servers and executors.
const ClocksApart = time.Minute

// ComesLater resolves a doubt when the API server no longer has the history. now is the newest state of the lock. The
// result depends on whether the lock has made its first call, and else on the times of servers and executors, which
// other clients cannot write. If the times are wrong, an operation that was accepted later may go first. A running call
// never waits: it began when no lock existed.
func ComesLater(d *Doubt, now *v1alpha1.Operation) bool {
	if now != nil && RequestOf(now) == RequestOf(d.Lock) && Entered(now) {
		return true
	}
	op, lock := d.Op, d.Lock
	earliest, latest := op.CreationTimestamp.Time, lock.CreationTimestamp.Time
	if at := op.Status.FinishedAt; at != nil && op.Status.OperationID != op.EffectiveID() { // of the previous request
		earliest = at.Time
	}
	switch {
	case lock.PickedUp() && lock.Status.InitializedAt != nil:
		latest = lock.Status.InitializedAt.Time
	case lock.Status.OperationID != "": // the time of the spec's replacement is unknown
		return false
	}
	return earliest.After(latest.Add(ClocksApart))
}
