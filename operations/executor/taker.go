package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/writeoption"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/effort"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Taker records the outcomes that receivers report by callback. Every replica can record them. The flow that waits
// for a callback, in any replica, sees it in the Operation. It is safe for concurrent use.
type Taker struct {
	client    *client.Client
	callbacks *Callbacks
	placeOf   func(*v1alpha1.Operation) string
	writes    *fair.Budget
	mask      func(ctx context.Context, namespace, webhookID, message string, more ...string) string
	now       func() time.Time
}

// Owner returns the namespace of the operation for which a token was made. It makes no request. Error:
// [operations.ErrUnknownCallback].
func (t *Taker) Owner(token string) (namespace string, err error) {
	cb, err := t.callbacks.Parse(token)
	return cb.Namespace, err
}

// takeRounds bounds the retries of a callback after conflicts, to about ten seconds.
const takeRounds = 40

var betweenRounds = backoff.Policy{Base: 10 * time.Millisecond, Cap: 500 * time.Millisecond, Factor: 2}

// Take records the outcome of a call and returns when it is written. A callback before the answer to its call is
// valid, too. Take waits for the namespace's share of writes, ahead of operations in progress. Errors:
// [operations.ErrUnknownCallback], [operations.ErrCallbackUsed], and those of package call.
func (t *Taker) Take(ctx context.Context, token string, succeeded bool, message string) error {
	cb, err := t.callbacks.Parse(token)
	if err != nil {
		return err
	}
	key := store.Key{Namespace: cb.Namespace, Name: cb.Name}
	now := t.now() // the same for all rounds: it identifies the write of this callback
	thin := course.Whole
	for round := 0; ; round++ {
		op, size, err := t.read(ctx, key, cb)
		if err != nil {
			return err
		}
		if round == 0 {
			linkCallback(ctx, op)
		}
		of := record.Target{Purpose: record.Purpose(cb.Purpose), ID: cb.WebhookID}
		if !op.PickedUp() { // the token proves that the call was started
			course.Begin(now, t.placeOf)(op)
			course.Attempt(op, of, course.FirstAttempt(op), 0, now)(op)
		}
		v := course.Verdict{State: v1alpha1.PhaseSuccess}
		if !succeeded {
			v.State, v.Reason = v1alpha1.PhaseFailed, v1alpha1.ReasonWebhookFailed
			v.Message = course.Tidy(t.mask(ctx, cb.Namespace, cb.WebhookID, message, token))
			if v.Message == "" {
				v.Message = "the receiver reported a failure"
			}
		}
		e := record.Entry(&op.Status, of)
		switch {
		case round > 0 && e != nil && e.State == v.State && e.FinishedAt.Equal(course.Micro(now)):
			return nil // an earlier round was written, but its answer was lost
		case op.Status.Phase.Terminal() || e == nil || e.State.Terminal():
			return operations.ErrCallbackUsed
		}
		v.Code = int(e.LastStatusCode)
		course.Judged(op, of, v, now)(op)
		thin.Apply(op)
		paid := fair.Price{Count: 1, Bytes: size}
		if err := t.writes.Wait(ctx, fair.Party{Group: key.Namespace, Member: tenant(op)}, paid, true); err != nil {
			return fmt.Errorf("%w: %w", errShort, err)
		}
		err = t.client.Status().Replace(ctx, op, writeoption.ConflictsExpected())
		t.writes.End(key.Namespace, paid, paid)
		switch {
		case apierrors.IsNotFound(err):
			return operations.ErrUnknownCallback
		case errors.Is(err, call.ErrTooLarge) && thin < course.Unowned:
			thin++
			continue
		case !apierrors.IsConflict(err) || round == takeRounds:
			return err
		}
		if err := backoff.Pause(ctx, betweenRounds.Delay(round, rand.Float64)); err != nil {
			return err
		}
	}
}

// read returns the Operation of a callback from the API server, with the cost of writing it in bytes.
func (t *Taker) read(ctx context.Context, key store.Key, cb Callback) (*v1alpha1.Operation, float64, error) {
	op := &v1alpha1.Operation{}
	if err := t.client.Live().Get(ctx, key, op); apierrors.IsNotFound(err) {
		return nil, 0, operations.ErrUnknownCallback
	} else if err != nil {
		return nil, 0, err
	}
	raw, err := json.Marshal(op)
	if err != nil {
		return nil, 0, err
	}
	if op.EffectiveID() != cb.OperationID {
		return nil, 0, operations.ErrCallbackUsed // valid once; the object has another request now
	}
	if !op.PickedUp() && !(course.Ordinary(op) && cb.Purpose == webhook.Main && cb.WebhookID == op.Spec.WebhookIDs[0]) {
		return nil, 0, operations.ErrUnknownCallback // such a call is recorded before it is made
	}
	return op, float64(effort.Of(raw)), nil
}

// masker masks the secrets of Webhooks.
type masker struct {
	hooks     *compiled.Cache
	secrets   *secrets
	endpoints *webhook.Client
}

// mask masks the secrets of a Webhook, as stored and as sent, in a text of its receiver. more are further values to
// mask.
func (m *masker) mask(ctx context.Context, namespace, webhookID, text string, more ...string) string {
	hook, err := m.hooks.Await(ctx, store.Key{Namespace: namespace, Name: webhookID})
	if err != nil {
		return webhook.Mask(text, more...)
	}
	d := hook.Definition()
	names, values := []string{d.SigningSecret}, more
	if a := d.Auth; a != nil {
		names = append(names, a.Basic, a.Bearer, a.MTLS)
		if a.OAuth2 != nil {
			names = append(names, a.OAuth2.Secret)
		}
		if t := a.ServiceAccountToken; t != nil {
			values = append(values, m.secrets.cached(tokenKey{namespace, t.ServiceAccountName, t.Audience}).value)
		}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		secret, err := store.Of[corev1.Secret](m.secrets.secrets).Get(store.Key{Namespace: namespace, Name: name})
		if err != nil {
			continue
		}
		for _, value := range secret.Data {
			values = append(values, strings.TrimSpace(string(value))) // calls send it without the trailing line break
		}
	}
	return m.endpoints.Mask(ctx, hook, text, values...)
}
