package fairlead

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/condition"
	"github.com/fairlead-io/fairlead/why"
)

// symptom is a condition of a built-in kind that indicates a problem.
type symptom struct {
	condition string
	bad       metav1.ConditionStatus
	passing   bool   // every object has it for a while after its creation
	fine      string // reason with which the condition is harmless
	advice    string
}

// settled is how long a passing symptom is harmless.
const settled = time.Minute

const (
	adviceUnscheduled = "Check which node could run it: its requests, affinity, tolerations and volumes decide."
	adviceContainers  = "Check its containers with kubectl describe and kubectl logs."
	advicePods        = "Check its pods and its Events."
)

// symptoms are the conditions with a known meaning, the most direct first. Conditions of other kinds are defined by
// their programs; their status True may be good or bad.
var symptoms = map[schema.GroupKind][]symptom{
	{Kind: "Pod"}: {
		{condition: "PodScheduled", bad: metav1.ConditionFalse, advice: adviceUnscheduled},
		{condition: "Initialized", bad: metav1.ConditionFalse, passing: true, advice: adviceContainers},
		{
			condition: "ContainersReady", bad: metav1.ConditionFalse, passing: true, fine: "PodCompleted",
			advice: adviceContainers,
		},
		{condition: "Ready", bad: metav1.ConditionFalse, passing: true, fine: "PodCompleted", advice: adviceContainers},
	},
	{Kind: "Node"}: {
		{condition: "Ready", bad: metav1.ConditionFalse}, {condition: "Ready", bad: metav1.ConditionUnknown},
	},
	{Group: "apps", Kind: "Deployment"}: {
		{condition: "ReplicaFailure", bad: metav1.ConditionTrue, advice: advicePods},
		{condition: "Progressing", bad: metav1.ConditionFalse, advice: advicePods},
		{condition: "Available", bad: metav1.ConditionFalse, passing: true, advice: advicePods},
	},
	{Group: "apps", Kind: "ReplicaSet"}: {{condition: "ReplicaFailure", bad: metav1.ConditionTrue, advice: advicePods}},
	{Group: "batch", Kind: "Job"}: {
		{condition: "Failed", bad: metav1.ConditionTrue, advice: advicePods},
		{condition: "Suspended", bad: metav1.ConditionTrue, advice: "It is suspended in its spec."},
	},
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {
		{condition: "NamesAccepted", bad: metav1.ConditionFalse, advice: "Another definition uses one of its names."},
		{condition: "Established", bad: metav1.ConditionFalse, passing: true},
	},
	{Group: "apiregistration.k8s.io", Kind: "APIService"}: {{condition: "Available", bad: metav1.ConditionFalse}},
}

// ailing returns the causes that the conditions of a built-in kind indicate. It sends a request, since q.obj is
// metadata only. Without an answer it returns nothing; q.find has reported the reason.
func (q *question) ailing(ctx context.Context) (causes []why.Cause) {
	known := symptoms[q.kind.GroupKind()]
	if len(known) == 0 || q.obj == nil || q.obj.GetDeletionTimestamp() != nil || len(q.silent) > 0 {
		return nil
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(q.kind.GroupVersionKind)
	if q.in.client.Live().Get(ctx, client.Key{Namespace: q.of.Namespace, Name: q.of.Name}, obj) != nil {
		return nil
	}
	all, err := condition.Of(obj)
	if err != nil {
		return nil
	}
	for _, s := range known {
		for _, c := range all {
			if c.Type != s.condition || c.Status != s.bad || s.fine != "" && c.Reason == s.fine {
				continue
			}
			since := c.LastTransitionTime.Time
			causes = append(causes, why.Cause{
				Type: why.Parked, Since: since, Message: fmt.Sprintf("its condition %s", condition.One(c)),
				Evidence: map[string]string{
					"condition": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
				},
				Advice:   s.advice,
				Progress: s.passing && time.Since(since) < settled,
			})
		}
	}
	return causes
}
