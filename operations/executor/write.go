package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// This file reads and writes the Operation of a run. A write is conditional on the version that the run knows. The
// run adopts its answer, and other readers find it in the store.

var (
	// errOutdated reports that another writer has changed the object: look again.
	errOutdated = errors.New("the operation has changed meanwhile")
	// errGone reports that the object does not exist any more.
	errGone = errors.New("the operation was deleted")
)

// refresh adopts the newest state that is available without waiting. That is the state of the store, unless it is
// older than the last write of this run. Otherwise the state is read from the API server.
func (e *Executor) refresh(ctx context.Context, r *run) error {
	fresh := e.fresh.in(r.key.Namespace)
	if known, ok := e.store.Get(r.key); ok && !resourceversion.Older(known.Version(), r.version) {
		r.confirmed = r.confirmed || fresh
		if r.op != nil && known.Version() == r.version {
			return nil
		}
		if op, err := store.As[v1alpha1.Operation](known); err == nil {
			r.adopt(op.DeepCopy())
			return nil
		}
	}
	if r.op != nil {
		return nil
	}
	return e.reload(ctx, r)
}

// get reads an operation from the API server. It returns nil if it does not exist.
func (e *Executor) get(ctx context.Context, key store.Key) (*v1alpha1.Operation, error) {
	op := &v1alpha1.Operation{}
	err := e.own.clientOf(key.Namespace, store.WriteContext{}).Live().Get(ctx, key, op)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return op, err
}

// reload adopts the state of the API server. It returns errGone if the operation does not exist.
func (e *Executor) reload(ctx context.Context, r *run) error {
	op, err := e.get(ctx, r.key)
	switch {
	case err != nil:
		return err
	case op == nil:
		return errGone
	}
	r.adopt(op)
	r.confirmed = true
	return nil
}

// save writes the status. If it is too large, save drops details until it fits, or until none are left that may be
// dropped.
func (e *Executor) save(ctx context.Context, r *run) error {
	for {
		if err := e.strip(ctx, r); err != nil {
			return err
		}
		err := e.write(ctx, r)
		if !errors.Is(err, call.ErrTooLarge) {
			return err
		}
		if r.thin >= course.Unowned && !r.op.Terminal() || r.thin == course.Bones {
			return err
		}
		r.thin++
		e.log.WarnContext(ctx, "the operation is too large to be stored",
			append(facts(r.op), "givesWay", r.thin.String(), "error", err)...)
	}
}

// strip makes the requests that drop details outside the status, up to the level r.thin.
func (e *Executor) strip(ctx context.Context, r *run) error {
	for ; r.stripped < r.thin; r.stripped++ {
		patch := (r.stripped + 1).Patch(r.op)
		if patch == nil {
			continue
		}
		switch err := e.patch(ctx, r, patch); {
		case err == nil:
		case errors.Is(err, call.ErrTooLarge), apierrors.IsInvalid(err), apierrors.IsForbidden(err): // not allowed
			e.log.WarnContext(ctx, "cannot make the operation smaller, going on", "key", r.key.String(), "error", err)
		default:
			return fmt.Errorf("cannot make the operation smaller: %w", err)
		}
	}
	return nil
}

// write writes the status. After a conflict it adopts the newest state and returns errOutdated.
func (e *Executor) write(ctx context.Context, r *run) error {
	if len(r.unsaved) == 0 {
		return nil
	}
	e.spans.record(ctx, r.op, r.thin)
	r.thin.Apply(r.op)
	n, kept := course.Keys(&r.op.Status), false
	err := e.submit(ctx, r, func(own *client.Client, cost client.WriteOption) error {
		whole := writeoption.Kept(func(answer []byte) bool {
			kept = course.KeptKeys(answer, n) // false if the API server has dropped an unknown field
			return kept
		})
		return own.Status().Replace(ctx, r.op, cost, writeoption.ConflictsExpected(), whole)
	})
	switch {
	case err == nil:
	case errors.Is(err, errShort), errors.Is(err, errOutdated), errors.Is(err, errGone):
		return err
	default:
		if ctx.Err() == nil { // else deletion or shutdown: that says nothing about other writes
			e.trust.failed(r.key.Namespace)
		}
		return fmt.Errorf("cannot record the status: %w", err)
	}
	r.unsaved, r.unrecorded, r.written = nil, time.Time{}, e.now()
	e.trust.written(r.key.Namespace, n, kept || course.Keys(&r.op.Status) == n)
	e.wrote(r, r.op)
	return nil
}

// patch changes fields outside the status.
func (e *Executor) patch(ctx context.Context, r *run, patch []byte) error {
	op := e.named(r)
	err := e.submit(ctx, r, func(own *client.Client, cost client.WriteOption) error {
		merge := client.RawPatch(types.MergePatchType, patch)
		return own.Patch(ctx, op, merge, client.SameVersion(), client.Always(), writeoption.ConflictsExpected(), cost)
	})
	if err == nil {
		e.wrote(r, op)
	}
	return err
}

// named returns an object with the identity of the operation of a run, in the version that the run knows.
func (e *Executor) named(r *run) *v1alpha1.Operation {
	return &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.key.Namespace, Name: r.key.Name, UID: r.op.UID, ResourceVersion: r.op.ResourceVersion,
	}}
}

// submit makes a write that is conditional on the version that the run knows.
func (e *Executor) submit(
	ctx context.Context, r *run, write func(own *client.Client, cost client.WriteOption) error,
) error {
	if !e.pay(r) {
		return errShort
	}
	size := 0
	err := write(e.writer(r), writeoption.Answered(func(raw []byte) { size = effort.Of(raw) }))
	e.settlePaid(r, size, err)
	switch {
	case apierrors.IsConflict(err):
		e.troubles.conflicted(&r.news, err, e.now())
		r.troubled = true
		if err := e.reload(ctx, r); err != nil {
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

// writer returns the client for writes of a run. Their events do not wake the run, except before its first call: then
// it may wait for such an event to know its turn.
func (e *Executor) writer(r *run) *client.Client {
	write := store.WriteContext{}
	if course.Entered(r.op) {
		write = store.WriteContext{Owner: owner, Primary: r.key}
	}
	return e.own.clientOf(r.key.Namespace, write)
}

// wrote adopts the answer to a write, and wakes the runs behind the operation.
func (e *Executor) wrote(r *run, op *v1alpha1.Operation) {
	r.adopt(op)
	r.confirmed = true
	e.lines.wake(r.key)
}

// errShort reports that a write has to wait for the share of its namespace. The budget wakes the run.
var errShort = errors.New("the namespace has used up its share of writes to the API server")

// pay spends the cost of the next write of a run, unless it is spent already. If it returns false, the budget wakes
// the run. Terminal statuses come first. While the executor drains, pay does not wait.
func (e *Executor) pay(r *run) bool {
	if r.paid.Count > 0 {
		return true
	}
	cost, urgent := fair.Price{Count: 1, Bytes: e.size(r)}, r.op.Terminal() || r.op.DeletionTimestamp != nil
	if !urgent && repeats(&r.op.Status) {
		cost.Count = repetition
	}
	if e.draining(r.key.Namespace) {
		e.unpay(r)
		e.writes.Take(r.key.Namespace, cost)
		r.paid = cost
		return true
	}
	paid, ok := e.writes.Acquire(r.party(), r, cost, urgent, r.news.Set)
	r.paid, r.short = paid, r.short || !ok
	return ok
}

// size returns the expected cost of the next write of a run in bytes. It is that of the last write, or that of the
// object in the store.
func (e *Executor) size(r *run) float64 {
	if r.size > 0 {
		return float64(r.size)
	}
	if known, ok := e.store.Get(r.key); ok {
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

// settlePaid replaces the cost that was spent for a write by the actual one. size is the cost of the answer in bytes;
// 0: no answer.
func (e *Executor) settlePaid(r *run, size int, err error) {
	bytes := r.paid.Bytes
	switch {
	case size > 0:
		r.size = int32(min(size, 1<<30))
		bytes = float64(r.size)
	case apierrors.IsConflict(err):
		bytes = 0
	}
	e.writes.End(r.key.Namespace, r.paid, fair.Price{Count: r.paid.Count, Bytes: bytes})
	r.paid, r.short = fair.Price{}, false
}

// unpay refunds the cost of a write that is not made, or stops waiting for it.
func (e *Executor) unpay(r *run) {
	e.writes.Withdraw(r.party(), r)
	e.writes.End(r.key.Namespace, r.paid, fair.Price{})
	r.paid = fair.Price{}
}

// outgrown ends an operation of which no more can be recorded. An operation with an open outcome fails. Otherwise its
// compensations and its notification fail.
func (e *Executor) outgrown(r *run, refusal error, now time.Time) {
	message := "the operation has become too large to be stored: " + refusal.Error()
	if record.SucceededCalls(r.op) < len(r.op.Spec.WebhookIDs) &&
		!meta.IsStatusConditionTrue(r.op.Status.Conditions, v1alpha1.ConditionError) {
		r.apply(course.Fail(r.op.EffectiveID(), v1alpha1.ReasonTooLarge, message, now))
		return
	}
	failed := course.Verdict{State: v1alpha1.PhaseFailed, Message: message}
	for _, id := range r.op.Spec.CompensateWebhookIDs {
		r.apply(course.Judged(r.op, record.Target{Purpose: record.Compensate, ID: id}, failed, now))
	}
	if id := r.op.Spec.NotifyWebhookID; id != "" {
		r.apply(course.Judged(r.op, record.Target{Purpose: record.Notify, ID: id}, failed, now))
	}
}
