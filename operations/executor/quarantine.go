package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// Quarantine. A Webhook whose templates or expressions have crashed the process is not computed any more. Operations
// that need it wait, as for a Webhook that does not exist, until it changes or they time out. A Witness finds the
// Webhook. The status of the Webhook records the quarantine for all replicas.

// errQuarantined reports that a Webhook is quarantined.
var errQuarantined = errors.New("webhook is quarantined, because evaluating it killed the controller: change it")

// quarantined reports whether the present version of a Webhook must not be used.
func (e *Executor) quarantined(w *v1alpha1.Webhook) bool {
	if _, guilty := e.condemned[compiled.Revision(w)]; guilty {
		return true
	}
	c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionQuarantined)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == w.Generation
}

// isQuarantined is quarantined for the Webhook with a name.
func (e *Executor) isQuarantined(namespace, name string) bool {
	w, err := store.Of[v1alpha1.Webhook](e.hookStore).Get(store.Key{Namespace: namespace, Name: name})
	return err == nil && e.quarantined(w)
}

// compile compiles a Webhook unless it is quarantined.
func (e *Executor) compile(ctx context.Context, d webhook.Definition) (*webhook.Compiled, error) {
	if e.isQuarantined(d.Namespace, d.Name) {
		return nil, fmt.Errorf("%w: %s", errQuarantined, d.Name)
	}
	return e.webhooks.Compile(ctx, d)
}

// quarantine sets or removes the condition Quarantined of a status.
func (e *Executor) quarantine(s *v1alpha1.WebhookStatus, w *v1alpha1.Webhook) {
	if guilty, ok := e.condemned[compiled.Revision(w)]; ok {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionQuarantined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCrashed,
			ObservedGeneration: w.Generation,
			LastTransitionTime: metav1.NewTime(guilty.At.Truncate(time.Second)), // in whole seconds, as it is stored
			Message: fmt.Sprintf(
				"the controller has died %d times while it was %s for this Webhook, the last time while it did nothing else; it is used "+
					"again when it is changed", suspicions+1, guilty.Phase,
			),
		})
	} else if !e.quarantined(w) {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionQuarantined) // the Webhook was changed
	}
}

// tellWitness tells the witness that the status of a Webhook has its verdict.
func (e *Executor) tellWitness(ctx context.Context, w *v1alpha1.Webhook) {
	guilty, ok := e.condemned[compiled.Revision(w)]
	if !ok {
		return
	}
	e.metrics.quarantined.Inc()
	e.log.ErrorContext(ctx, "webhook is quarantined", "webhook", w.Namespace+"/"+w.Name, "phase", guilty.Phase,
		"crashed", guilty.At)
	e.witness.Settled(guilty)
}
