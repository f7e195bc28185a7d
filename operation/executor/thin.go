package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/webhook"
)

// Too large. An Operation can be so large that the API server does not store another word of it: by its request object,
// by annotations of others, by the bookkeeping of the server. What cannot be recorded is not done, so such an operation
// ends, as failed unless all was done; and what is not needed for that gives way, one after the other, until the end
// can be written (O1).

// thinness is how much of an operation has given way. Each one includes those before it.
type thinness uint8

const (
	whole    thinness = iota
	brief             // no history, short messages
	unowned           // no managed fields, which the server begins anew; of calls that are over only how they ended
	stripped          // at the end only: no request object, which is taken away with a request to cancel, since the rules allow that alone
	naked             // no labels and annotations of others
	bones             // of calls nothing but their outcome
)

// String says what gives way.
func (t thinness) String() string {
	return [...]string{"nothing", "history and messages", "managed fields", "request object", "labels and annotations", "details of calls"}[t]
}

const (
	briefMessage = 64             // bytes of a message that is short
	ownPrefix    = "fairlead.io/" // of labels and annotations that stay
	reset        = `[{}]`         // for metadata.managedFields
)

// apply takes from an operation what gives way without a request of its own.
func (t thinness) apply(op *v1alpha1.Operation) {
	if t < brief {
		return
	}
	s := &op.Status
	s.History = nil
	for i := range s.Conditions {
		s.Conditions[i].Message = short(s.Conditions[i].Message)
	}
	for i := range s.Webhooks {
		t.call(&s.Webhooks[i])
	}
	for i := range s.Compensations {
		t.call(&s.Compensations[i])
	}
	if s.Notification != nil {
		t.call(s.Notification)
	}
	if t >= unowned {
		op.ManagedFields = []metav1.ManagedFieldsEntry{{}}
	}
}

func (t thinness) call(e *v1alpha1.WebhookCallStatus) {
	e.Message = short(e.Message)
	switch {
	case t >= bones:
		*e = v1alpha1.WebhookCallStatus{WebhookID: e.WebhookID, State: e.State}
	case t >= unowned && e.State.Terminal(): // what only those need that go on
		e.WebhookPollURL, e.AttemptID, e.IdempotencyKey, e.StartedAt, e.LastPollTimestamp = "", "", "", nil, nil
	}
}

func short(message string) string {
	if len(message) <= briefMessage {
		return message
	}
	return strings.ToValidUTF8(message[:briefMessage-len("…")], "") + "…"
}

// save writes the status; what is too large is made smaller until it is taken, or nothing is left that may give way.
func (e *Executor) save(ctx context.Context, r *run) error {
	for {
		if err := e.strip(ctx, r); err != nil {
			return err
		}
		err := e.write(ctx, r)
		if !errors.Is(err, call.ErrTooLarge) {
			return err
		}
		if r.thin >= unowned && !r.op.Terminal() || r.thin == bones {
			return err
		}
		r.thin++
		e.log.WarnContext(ctx, "the operation is too large to be stored", append(e.facts(r.op), "givesWay", r.thin.String(), "error", err)...)
	}
}

// strip sends the requests that are due since more has given way.
func (e *Executor) strip(ctx context.Context, r *run) error {
	for ; r.stripped < r.thin; r.stripped++ {
		patch := (r.stripped + 1).patch(r.op)
		if patch == nil {
			continue
		}
		switch err := e.patch(ctx, r, patch); {
		case err == nil:
		case errors.Is(err, call.ErrTooLarge), apierrors.IsInvalid(err), apierrors.IsForbidden(err): // it may not give way
		default:
			return fmt.Errorf("cannot make the operation smaller: %w", err)
		}
	}
	return nil
}

// patch is the request that takes away what is not part of the status; nil if there is nothing.
func (t thinness) patch(op *v1alpha1.Operation) []byte {
	metadata := map[string]any{"managedFields": json.RawMessage(reset)}
	body := map[string]any{"metadata": metadata}
	switch {
	case t == stripped && op.Spec.RequestObject != nil:
		body["spec"] = map[string]any{"requestObject": nil, "cancelRequested": true}
	case t == naked && len(op.Labels)+len(op.Annotations) > 0:
		metadata["labels"], metadata["annotations"] = foreign(op.Labels), foreign(op.Annotations)
	default:
		return nil
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil
	}
	return patch
}

// foreign is the patch that removes what is not ours.
func foreign(all map[string]string) map[string]any {
	gone := make(map[string]any)
	for key := range all {
		if !strings.HasPrefix(key, ownPrefix) {
			gone[key] = nil
		}
	}
	return gone
}

// outgrown is what becomes of an operation of which no more can be recorded: if its outcome is open, it has failed,
// else the calls that should follow have.
func (e *Executor) outgrown(r *run, refusal error, now time.Time) {
	message := "the operation has become too large to be stored: " + refusal.Error()
	if succeeded(r.op) < len(r.op.Spec.WebhookIDs) && !meta.IsStatusConditionTrue(r.op.Status.Conditions, v1alpha1.ConditionError) {
		r.apply(fail(r.op.EffectiveID(), v1alpha1.ReasonTooLarge, message, now))
		return
	}
	failed := verdict{state: v1alpha1.PhaseFailed, message: message}
	for _, id := range r.op.Spec.CompensateWebhookIDs {
		r.apply(judged(r.op, target{webhook.Compensate, id}, failed, now))
	}
	if id := r.op.Spec.NotifyWebhookID; id != "" {
		r.apply(judged(r.op, target{webhook.Notify, id}, failed, now))
	}
}
