package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/store"
	"github.com/fairlead-io/fairlead/webhook"
)

// Taker records what receivers report by callback. Any replica can: the flow that waits for it, wherever it runs,
// learns of it from the Operation. It is safe for concurrent use.
type Taker struct {
	client    *client.Client
	callbacks *Callbacks
	placeOf   func(*v1alpha1.Operation) string
	mask      func(ctx context.Context, namespace, webhookID, message string, more ...string) string
	now       func() time.Time
}

// Taker returns what takes the callbacks of the calls that this Executor, or another one with the same key, makes. It works whether or not
// the Executor runs.
func (e *Executor) Taker() *Taker {
	return &Taker{client: e.anyone, callbacks: e.callbacks, placeOf: e.placeOf, mask: e.masked, now: e.now}
}

// Owner returns the namespace of the operation that a token was made for. It asks nobody. Error: [operation.ErrUnknownCallback].
func (t *Taker) Owner(token string) (namespace string, err error) {
	cb, _, err := t.callbacks.parseAny(token)
	return cb.Namespace, err
}

// takeRounds bounds how often a callback contends with others who write its Operation, for ten seconds or so.
const takeRounds = 40

var betweenRounds = backoff.Policy{Base: 10 * time.Millisecond, Cap: 500 * time.Millisecond, Factor: 2}

// Take records the outcome of a call and returns when it is written. A callback that comes before the answer to its
// call counts too. Errors: [operation.ErrUnknownCallback], [operation.ErrCallbackUsed], those of package call.
func (t *Taker) Take(ctx context.Context, token string, succeeded bool, message string) error {
	cb, former, err := t.callbacks.parseAny(token)
	if err != nil {
		return err
	}
	key := store.Key{Namespace: cb.Namespace, Name: cb.Name}
	now := t.now() // one for all rounds: it tells what this callback has written
	thin := whole
	for round := 0; ; round++ {
		op, err := t.read(ctx, key, cb)
		if err == nil && former {
			err = t.began(ctx, op)
		}
		if err != nil {
			return err
		}
		of := target{cb.Purpose, cb.WebhookID}
		if !op.PickedUp() { // the token says that the call was begun
			begin(now, t.placeOf)(op)
			attempt(op, of, firstAttempt(op), now)(op)
		}
		v := verdict{state: v1alpha1.PhaseSuccess}
		if !succeeded {
			v.state, v.reason = v1alpha1.PhaseFailed, v1alpha1.ReasonWebhookFailed
			v.message = tidy(t.mask(ctx, cb.Namespace, cb.WebhookID, message, token))
			if v.message == "" {
				v.message = "the receiver reported a failure"
			}
		}
		e := entry(&op.Status, of)
		switch {
		case round > 0 && e != nil && e.State == v.state && e.FinishedAt.Equal(micro(now)):
			return nil // the answer was lost, and the flow has gone on since
		case op.Status.Phase.Terminal() || e == nil || e.State.Terminal():
			return operation.ErrCallbackUsed
		}
		v.code = int(e.LastStatusCode)
		judged(op, of, v, now)(op)
		thin.apply(op)
		err = t.client.Status().Replace(ctx, op)
		switch {
		case apierrors.IsNotFound(err):
			return operation.ErrUnknownCallback
		case errors.Is(err, call.ErrTooLarge) && thin < unowned:
			thin++
			continue
		case !apierrors.IsConflict(err) || round == takeRounds:
			return err
		}
		if err := pauseFor(ctx, betweenRounds.Delay(round, rand.Float64)); err != nil {
			return err
		}
	}
}

// began refuses a token of the former key for an operation that did not begin under it.
func (t *Taker) began(ctx context.Context, op *v1alpha1.Operation) error {
	if !op.PickedUp() {
		return operation.ErrUnknownCallback
	}
	began, err := t.callbacks.former.Began(ctx, op.Status.AcceptedVersion)
	if err == nil && !began {
		err = operation.ErrUnknownCallback
	}
	return err
}

// read returns the Operation of a callback as the API server has it.
func (t *Taker) read(ctx context.Context, key store.Key, cb Callback) (*v1alpha1.Operation, error) {
	op := &v1alpha1.Operation{}
	err := t.client.Live().Get(ctx, key, op)
	switch {
	case apierrors.IsNotFound(err):
		return nil, operation.ErrUnknownCallback
	case err != nil:
		return nil, err
	}
	if op.EffectiveID() != cb.OperationID {
		return nil, operation.ErrCallbackUsed // it was good once: others have followed
	}
	if !op.PickedUp() && !(ordinary(op) && cb.Purpose == webhook.Main && cb.WebhookID == op.Spec.WebhookIDs[0]) {
		return nil, operation.ErrUnknownCallback // such a call is recorded first
	}
	return op, nil
}

func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
