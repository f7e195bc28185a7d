package executor

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/store"
)

// Taker records what receivers report by callback. Any replica can: the flow that waits for it, wherever it runs,
// learns of it from the Operation. It is safe for concurrent use.
type Taker struct {
	calls     *call.Client
	policy    call.Policy
	callbacks *Callbacks
	mask      func(ctx context.Context, namespace, webhookID, message string, more ...string) string
	now       func() time.Time
}

// Taker returns what takes the callbacks of the calls that this Executor, or another one with the same key, makes. It works whether or not
// the Executor runs.
func (e *Executor) Taker() *Taker {
	return &Taker{calls: e.calls, policy: e.policy, callbacks: e.callbacks, mask: e.masked, now: e.now}
}

const takeRounds = 8

// Take records the outcome of a call and returns when it is written. A callback that comes before the answer to its
// call counts too. Errors: [operation.ErrUnknownCallback], [operation.ErrCallbackUsed], those of package call.
func (t *Taker) Take(ctx context.Context, token string, succeeded bool, message string) error {
	cb, err := t.callbacks.Parse(token)
	if err != nil {
		return err
	}
	key := store.Key{Namespace: cb.Namespace, Name: cb.Name}
	for range takeRounds {
		answer, err := call.Do(ctx, t.calls, operationRequest(call.VerbGet, key, func(q *call.Request) { q.NotFoundOK = true }), t.policy)
		switch {
		case err != nil:
			return err
		case answer == nil:
			return operation.ErrUnknownCallback
		}
		op := &v1alpha1.Operation{}
		if err := answer.Into(op); err != nil {
			return err
		}
		if op.EffectiveID() != cb.OperationID {
			return operation.ErrCallbackUsed // it was good once: others have followed
		}
		if !op.PickedUp() {
			return operation.ErrUnknownCallback
		}
		of := target{cb.Purpose, cb.WebhookID}
		if e := entry(&op.Status, of); op.Status.Phase.Terminal() || e == nil || e.State.Terminal() {
			return operation.ErrCallbackUsed
		}
		v := verdict{state: v1alpha1.PhaseSuccess, code: int(entry(&op.Status, of).LastStatusCode)}
		if !succeeded {
			v.state, v.reason = v1alpha1.PhaseFailed, v1alpha1.ReasonWebhookFailed
			v.message = tidy(t.mask(ctx, cb.Namespace, cb.WebhookID, message, token))
			if v.message == "" {
				v.message = "the receiver reported a failure"
			}
		}
		judged(op, of, v, t.now())(op)
		_, err = call.Do(ctx, t.calls, operationRequest(call.VerbUpdate, key, func(q *call.Request) {
			q.Subresource, q.Object = "status", op
		}), t.policy)
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return errOutdated
}
