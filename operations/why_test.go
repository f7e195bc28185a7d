package operations_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/why"
)

// TestWhy: the most direct cause of an object comes first. If there is no other cause, its next step is due, which is
// no trouble in the first seconds.
func TestWhy(t *testing.T) {
	t.Parallel()
	picked := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	op := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: "a", CreationTimestamp: metav1.NewTime(picked),
	}}
	op.Spec.OperationID, op.Spec.WebhookIDs = "1", []string{"cleanup"}
	op.Status.OperationID, op.Status.Phase = "1", v1alpha1.PhaseInProgress
	op.Status.InitializedAt = new(metav1.NewMicroTime(picked))
	for after, progress := range map[time.Duration]bool{time.Second: true, time.Minute: false} {
		got := operations.Why(op, picked.Add(after))
		if len(got) != 1 || got[0].Type != why.Parked || !got[0].Since.Equal(picked) || got[0].Progress != progress {
			t.Errorf("after %v: %+v", after, got)
		}
	}
	op.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: "False", Reason: v1alpha1.ReasonWaitingForLock, Message: "waiting for another",
	}}
	op.Spec.Timeout.Duration = time.Minute
	got := operations.Why(op, picked.Add(time.Hour))
	if len(got) != 2 || got[0].Type != why.DeadlinePassed || got[1].Type != why.LockHeld {
		t.Errorf("after its deadline: %+v", got)
	}
}
