package executor

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// TestPacesOfTenants: each tenant has a pace of its own. A tenant without recent writes is forgotten.
func TestPacesOfTenants(t *testing.T) {
	t.Parallel()
	var p paces
	now := time.Unix(1_000_000, 0)
	a, b := fair.Party{Group: "n", Member: "a"}, fair.Party{Group: "n", Member: "b"}
	for _, step := range []struct {
		reason string
		of     fair.Party
		after  time.Duration
		want   bool
	}{
		{"the first write", a, 0, true},
		{"another one at once", a, 0, false},
		{"another tenant", b, 0, true},
		{"too soon", a, repeatsApart - 1, false},
		{"late enough", a, repeatsApart, true},
		{"too soon after that", a, 2*repeatsApart - 1, false},
	} {
		if got := p.take(step.of, now.Add(step.after)); got != step.want {
			t.Errorf("%s: %v", step.reason, got)
		}
	}
	for i := range 10_000 {
		p.take(fair.Party{Member: fmt.Sprint(i)}, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(p.last); n > 128 {
		t.Errorf("%d tenants are remembered", n)
	}
}

// TestRepeatsAreFolded: the unwritten records of repeated tries do not grow with their number, and give the same
// result.
func TestRepeatsAreFolded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	target := record.Target{ID: "w"}
	made := func() *v1alpha1.Operation {
		op := &v1alpha1.Operation{}
		op.Spec.OperationID, op.Status.OperationID = "o", "o"
		op.Spec.WebhookIDs = []string{"w"}
		op.Status.Phase = v1alpha1.PhaseInProgress
		op.Status.Webhooks = []v1alpha1.WebhookCallStatus{{
			WebhookID: "w", State: v1alpha1.PhaseInProgress, AttemptID: "a", RetriesCount: 1,
		}}
		return op
	}
	r := &edit{op: made()}
	const tries = 100
	for i := range tries {
		at := now.Add(time.Duration(i) * 50 * time.Millisecond)
		failed := course.Verdict{
			State: v1alpha1.PhaseInProgress, Code: 503, Message: fmt.Sprint("try ", i), Next: at.Add(50 * time.Millisecond),
		}
		r.foldRepeats(target)
		r.change(unsavedChange{course.Judged(r.op, target, failed, at), at, target})
		if i < tries-1 {
			r.change(unsavedChange{course.Again(r.op, target, 1), at, target})
		}
	}
	if n := len(r.unsaved); n > 3 {
		t.Errorf("%d changes are not written", n)
	}
	again := made()
	for _, c := range r.unsaved {
		c.Change(again)
	}
	for name, op := range map[string]*v1alpha1.Operation{"at first": r.op, "repeated": again} {
		w := op.Status.Webhooks[0]
		if w.RetriesCount != tries || w.LastStatusCode != 503 || w.Message != fmt.Sprint("try ", tries-1) ||
			w.NextAttemptAt == nil {
			t.Errorf("%s: %+v", name, w)
		}
	}
}
