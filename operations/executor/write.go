package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/writeoption"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/effort"
)

// writes reads and writes the Operations of drafts. A write is conditional on the version that the draft knows. The
// draft adopts its answer, and other readers find it in the store. writes has no state besides the budget and trust. It
// is safe for concurrent use with different drafts.
type writes struct {
	own    *ownership
	store  *store.Store
	fresh  func(namespace string) bool // whether the store has everything that a predecessor may have written
	budget *fair.Budget
	trust  *trust
	spans  spans
	// draining reports whether results are recorded without waiting for the budget.
	draining func(namespace string) bool
	// conflicted is called after a write conflict, and written after a write.
	conflicted func(n *news, err error, now time.Time)
	written    func(key store.Key)
	log        *slog.Logger
	now        func() time.Time
}

var (
	// errOutdated reports that another writer has changed the object: look again.
	errOutdated = errors.New("the operation has changed meanwhile")
	// errGone reports that the object does not exist any more.
	errGone = errors.New("the operation was deleted")
)

// refresh adopts the newest state that is available without waiting. That is the state of the store, unless it is
// older than the last write of this draft. Otherwise the state is read from the API server.
func (w *writes) refresh(ctx context.Context, d draft) error {
	fresh := w.fresh(d.key.Namespace)
	if known, ok := w.store.Get(d.key); ok && !resourceversion.Older(known.Version(), d.version) {
		d.confirmed = d.confirmed || fresh
		if d.op != nil && known.Version() == d.version {
			return nil
		}
		if op, err := store.As[v1alpha1.Operation](known); err == nil {
			d.adopt(op.DeepCopy())
			return nil
		}
	}
	if d.op != nil {
		return nil
	}
	return w.reload(ctx, d)
}

// get reads an operation from the API server. It returns nil if it does not exist.
func (w *writes) get(ctx context.Context, key store.Key) (*v1alpha1.Operation, error) {
	op := &v1alpha1.Operation{}
	err := w.own.clientOf(key.Namespace, store.WriteContext{}).Live().Get(ctx, key, op)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return op, err
}

// reload adopts the state of the API server. It returns errGone if the operation does not exist.
func (w *writes) reload(ctx context.Context, d draft) error {
	op, err := w.get(ctx, d.key)
	switch {
	case err != nil:
		return err
	case op == nil:
		return errGone
	}
	d.adopt(op)
	d.confirmed = true
	return nil
}

// save writes the status. If it is too large, save drops details until it fits, or until none are left that may be
// dropped.
func (w *writes) save(ctx context.Context, d draft) error {
	for {
		if err := w.strip(ctx, d); err != nil {
			return err
		}
		err := w.write(ctx, d)
		if !errors.Is(err, call.ErrTooLarge) {
			return err
		}
		if d.thin >= course.Unowned && !d.op.Terminal() || d.thin == course.Bones {
			return err
		}
		d.thin++
		w.log.WarnContext(ctx, "the operation is too large to be stored",
			append(facts(d.op), "givesWay", d.thin.String(), "error", err)...)
	}
}

// strip makes the requests that drop details outside the status, up to the level d.thin.
func (w *writes) strip(ctx context.Context, d draft) error {
	for ; d.stripped < d.thin; d.stripped++ {
		patch := (d.stripped + 1).Patch(d.op)
		if patch == nil {
			continue
		}
		switch err := w.patch(ctx, d, patch); {
		case err == nil:
		case errors.Is(err, call.ErrTooLarge), apierrors.IsInvalid(err), apierrors.IsForbidden(err): // not allowed
			w.log.WarnContext(ctx, "cannot make the operation smaller, going on", "key", d.key.String(), "error", err)
		default:
			return fmt.Errorf("cannot make the operation smaller: %w", err)
		}
	}
	return nil
}

// write writes the status. After a conflict it adopts the newest state and returns errOutdated.
func (w *writes) write(ctx context.Context, d draft) error {
	if len(d.unsaved) == 0 {
		return nil
	}
	w.spans.record(ctx, d.op, d.thin)
	d.thin.Apply(d.op)
	n, kept := course.Keys(&d.op.Status), false
	err := w.submit(ctx, d, func(own *client.Client, cost client.WriteOption) error {
		whole := writeoption.Kept(func(answer []byte) bool {
			kept = course.KeptKeys(answer, n) // false if the API server has dropped an unknown field
			return kept
		})
		return own.Status().Replace(ctx, d.op, cost, writeoption.ConflictsExpected(), whole)
	})
	switch {
	case err == nil:
	case errors.Is(err, errShort), errors.Is(err, errOutdated), errors.Is(err, errGone):
		return err
	default:
		if ctx.Err() == nil { // else deletion or shutdown: that says nothing about other writes
			w.trust.failed(d.key.Namespace)
		}
		return fmt.Errorf("cannot record the status: %w", err)
	}
	d.unsaved, d.unrecorded, d.edit.written = nil, time.Time{}, w.now()
	w.trust.written(d.key.Namespace, n, kept || course.Keys(&d.op.Status) == n)
	w.wrote(d, d.op)
	return nil
}

// patch changes fields outside the status.
func (w *writes) patch(ctx context.Context, d draft, patch []byte) error {
	op := w.named(d)
	err := w.submit(ctx, d, func(own *client.Client, cost client.WriteOption) error {
		merge := client.RawPatch(types.MergePatchType, patch)
		return own.Patch(ctx, op, merge, client.SameVersion(), client.Always(), writeoption.ConflictsExpected(), cost)
	})
	if err == nil {
		w.wrote(d, op)
	}
	return err
}

// named returns an object with the identity of the operation of a draft, in the version that the draft knows.
func (w *writes) named(d draft) *v1alpha1.Operation {
	return &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{
		Namespace: d.key.Namespace, Name: d.key.Name, UID: d.op.UID, ResourceVersion: d.op.ResourceVersion,
	}}
}

// submit makes a write that is conditional on the version that the draft knows.
func (w *writes) submit(
	ctx context.Context, d draft, write func(own *client.Client, cost client.WriteOption) error,
) error {
	if !w.pay(d) {
		return errShort
	}
	size := 0
	err := write(w.writer(d), writeoption.Answered(func(raw []byte) { size = effort.Of(raw) }))
	w.settleCost(d, size, err)
	switch {
	case apierrors.IsConflict(err):
		w.conflicted(d.wake, err, w.now())
		d.troubled = true
		if err := w.reload(ctx, d); err != nil {
			return err
		}
		return errOutdated
	case apierrors.IsNotFound(err):
		return errGone
	}
	return err
}

// owner marks the writes whose events do not wake runs.
const owner = "fairlead executor"

// writer returns the client for writes of a draft. Their events do not wake the run, except before its first call: then
// it may wait for such an event to know its turn.
func (w *writes) writer(d draft) *client.Client {
	write := store.WriteContext{}
	if course.Entered(d.op) {
		write = store.WriteContext{Owner: owner, Primary: d.key}
	}
	return w.own.clientOf(d.key.Namespace, write)
}

// wrote adopts the answer to a write, and wakes the runs behind the operation.
func (w *writes) wrote(d draft, op *v1alpha1.Operation) {
	d.adopt(op)
	d.confirmed = true
	w.written(d.key)
}

// errShort reports that a write has to wait for the share of its namespace. The budget wakes the run.
var errShort = errors.New("the namespace has used up its share of writes to the API server")

// pay spends the cost of the next write of a draft, unless it is spent already. If it returns false, the budget wakes
// the run. Terminal statuses come first. While the executor drains, pay does not wait.
func (w *writes) pay(d draft) bool {
	if d.paid.Count > 0 {
		return true
	}
	cost, urgent := fair.Price{Count: 1, Bytes: w.size(d)}, d.op.Terminal() || d.op.DeletionTimestamp != nil
	if !urgent && repeats(&d.op.Status) {
		cost.Count = repetition
	}
	if w.draining(d.key.Namespace) {
		w.refund(d)
		w.budget.Take(d.key.Namespace, cost)
		d.paid = cost
		return true
	}
	paid, ok := w.budget.Acquire(d.party, d.wake, cost, urgent, d.wake.Set)
	d.paid, d.short = paid, d.short || !ok
	return ok
}

// size returns the expected cost of the next write of a draft in bytes. It is that of the last write, or that of the
// object in the store.
func (w *writes) size(d draft) float64 {
	if d.size > 0 {
		return float64(d.size)
	}
	if known, ok := w.store.Get(d.key); ok {
		return float64(smallObject + effort.Of(known.AppendRaw(nil)))
	}
	return smallObject
}

// repeats reports whether a call of an operation is being repeated or polled.
func repeats(s *v1alpha1.OperationStatus) bool {
	again := func(e *v1alpha1.WebhookCallStatus) bool {
		return !e.State.Terminal() && (e.RetriesCount > 0 || e.LastPollTimestamp != nil)
	}
	for i := range s.Webhooks {
		if again(&s.Webhooks[i]) {
			return true
		}
	}
	for i := range s.Compensations {
		if again(&s.Compensations[i]) {
			return true
		}
	}
	return s.Notification != nil && again(s.Notification)
}

// settleCost replaces the cost that was spent for a write by the actual one. size is the cost of the answer in bytes;
// 0: no answer.
func (w *writes) settleCost(d draft, size int, err error) {
	bytes := d.paid.Bytes
	switch {
	case size > 0:
		d.size = int32(min(size, 1<<30))
		bytes = float64(d.size)
	case apierrors.IsConflict(err):
		bytes = 0
	}
	w.budget.End(d.key.Namespace, d.paid, fair.Price{Count: d.paid.Count, Bytes: bytes})
	d.paid, d.short = fair.Price{}, false
}

// refund refunds the cost of a write that is not made, or stops waiting for it.
func (w *writes) refund(d draft) {
	w.budget.Withdraw(d.party, d.wake)
	w.budget.End(d.key.Namespace, d.paid, fair.Price{})
	d.paid = fair.Price{}
}
