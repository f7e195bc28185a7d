package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
)

func TestDescribeLocks(t *testing.T) {
	t.Parallel()
	op := &v1alpha1.Operation{}
	op.Namespace, op.Name, op.CreationTimestamp = "team-a", "app-1", metav1.NewTime(time.Unix(1_790_000_000, 0))
	op.Spec.OperationID, op.Spec.ResourceType, op.Spec.ResourceID = "one", "app", "1"
	for _, id := range []string{"1", "2"} {
		op.Spec.RelatedResources = append(op.Spec.RelatedResources,
			v1alpha1.RelatedResource{ResourceReference: v1alpha1.ResourceReference{ResourceType: "cache", ResourceID: id}},
			v1alpha1.RelatedResource{ResourceReference: v1alpha1.ResourceReference{ResourceType: "db", ResourceID: id}, Lock: true})
	}
	op.Status.OperationID, op.Status.Phase = "one", v1alpha1.PhaseInProgress
	op.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWaitingForLock,
		Message: "waiting for the end of operation two (Update) of app/2, because of db/1",
	}}
	var out strings.Builder
	if err := describeOperation(&out, op); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"Related: cache/1, cache/2 Locks: db/1, db/2 ",
		"Waiting: for the end of operation two (Update) of app/2, because of db/1 ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
