package executor

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
)

// quarantine knows the Webhooks that must not be evaluated, since their templates or expressions have crashed the
// process. Operations that need such a Webhook wait, as for a Webhook that does not exist, until it changes or they
// time out. A Witness finds the Webhook. The status of the Webhook records the quarantine for all replicas.
//
// It has no lock: condemned does not change.
type quarantine struct {
	witness   Witness              // nil: only statuses count
	condemned map[string]Condemned // by revision
	webhooks  store.View[v1alpha1.Webhook]
}

// errQuarantined reports that a Webhook is quarantined.
var errQuarantined = errors.New("webhook is quarantined, because evaluating it killed the controller: change it")

func newQuarantine(witness Witness, webhooks store.View[v1alpha1.Webhook]) *quarantine {
	q := &quarantine{witness: witness, webhooks: webhooks}
	if witness != nil {
		q.condemned = make(map[string]Condemned)
		for _, c := range witness.Condemned() {
			q.condemned[c.Revision] = c
		}
	}
	return q
}

// has reports whether the present version of a Webhook must not be used.
func (q *quarantine) has(w *v1alpha1.Webhook) bool {
	if _, guilty := q.condemned[compiled.Revision(w)]; guilty {
		return true
	}
	c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionQuarantined)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == w.Generation
}

// hasNamed is has for the Webhook with a name.
func (q *quarantine) hasNamed(namespace, name string) bool {
	w, err := q.webhooks.Get(store.Key{Namespace: namespace, Name: name})
	return err == nil && q.has(w)
}

// show sets or removes the condition Quarantined in a status of w.
func (q *quarantine) show(s *v1alpha1.WebhookStatus, w *v1alpha1.Webhook) {
	if guilty, ok := q.condemned[compiled.Revision(w)]; ok {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionQuarantined, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCrashed,
			ObservedGeneration: w.Generation,
			LastTransitionTime: metav1.NewTime(guilty.At.Truncate(time.Second)), // in whole seconds, as it is stored
			Message: fmt.Sprintf(
				"the controller has died %d times while it was %s for this Webhook, the last time while it did nothing else; "+
					"it is used again when it is changed", suspicions+1, guilty.Phase,
			),
		})
	} else if !q.has(w) {
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionQuarantined) // the Webhook was changed
	}
}

// settle tells the witness that the status of a Webhook records its quarantine, after a call of report. It does nothing
// if the witness has not condemned the Webhook.
func (q *quarantine) settle(w *v1alpha1.Webhook, report func(Condemned)) {
	if guilty, ok := q.condemned[compiled.Revision(w)]; ok {
		report(guilty)
		q.witness.Settled(guilty)
	}
}
