package causes_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/causes"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// TestDueCallsMatchThePlan: the explanation of an operation names the same calls that the executor makes or waits for,
// in every state.
func TestDueCallsMatchThePlan(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	phases := []v1alpha1.Phase{v1alpha1.PhaseInProgress, v1alpha1.PhaseSuccess, v1alpha1.PhaseFailed}
	rapid.Check(t, func(t *rapid.T) {
		op := &v1alpha1.Operation{}
		op.Name = v1alpha1.OperationName("Application", "shop")
		op.Spec.ResourceReference = v1alpha1.ResourceReference{ResourceType: "Application", ResourceID: "shop"}
		op.Spec.OperationType, op.Spec.OperationID = v1alpha1.OperationUpdate, "o"
		op.Spec.WebhookIDs = []v1alpha1.WebhookID{"a", "b"}
		op.Spec.CompensateWebhookIDs, op.Spec.NotifyWebhookID = []v1alpha1.WebhookID{"undo"}, "tell"
		if rapid.Bool().Draw(t, "parallel") {
			op.Spec.Execution = v1alpha1.ExecutionParallel
		}
		op.Spec.CancelRequested = rapid.Bool().Draw(t, "cancel")
		course.Begin(now, func(*v1alpha1.Operation) string { return "1" })(op)
		flying := map[record.Target]bool{}
		draw := func(target record.Target) {
			if !rapid.Bool().Draw(t, "begun "+target.ID) {
				return
			}
			course.Attempt(op, target, "try", 1, now)(op)
			e := record.Entry(&op.Status, target)
			if e.State = rapid.SampledFrom(phases).Draw(t, "state "+target.ID); !e.State.Terminal() {
				flying[target] = rapid.Bool().Draw(t, "under way "+target.ID)
			}
		}
		draw(record.Target{ID: "a"})
		draw(record.Target{ID: "b"})
		if rapid.Bool().Draw(t, "failed") {
			course.Fail("o", v1alpha1.ReasonWebhookFailed, "no", now)(op)
			draw(record.Target{Purpose: record.Compensate, ID: "undo"})
		}
		if rapid.Bool().Draw(t, "deleted") {
			op.DeletionTimestamp, op.Finalizers = &metav1.Time{Time: now}, []string{v1alpha1.Finalizer}
		}

		at := now.Add(time.Second)
		var asked []record.Target
		d := course.Plan(op, course.Surroundings{
			Find: func(string) (course.WebhookFacts, bool) { return course.WebhookFacts{Timeout: time.Minute}, true },
			Flying: func(target record.Target) bool {
				if flying[target] {
					asked = append(asked, target)
				}
				return flying[target]
			},
			NotBefore: func(record.Target) time.Time { return time.Time{} },
		}, at)
		got := causes.Due(op, causes.Known{Began: func(target record.Target) time.Time {
			if flying[target] {
				return now
			}
			return time.Time{}
		}})
		switch d.Act {
		case course.ActCall:
			for _, due := range d.Due {
				if !slices.Contains(got, due) {
					t.Fatalf("%+v is due, and not explained: %+v", due, got)
				}
			}
		case course.ActWait:
			if len(got) == 0 || !slices.ContainsFunc(got,
				func(target record.Target) bool { return slices.Contains(asked, target) }) {
				t.Fatalf("it waits for %+v, and %+v is explained", asked, got)
			}
		case course.ActFinish:
			if len(got) > 0 {
				t.Fatalf("all calls are made, and %+v is explained", got)
			}
		}
	})
}
