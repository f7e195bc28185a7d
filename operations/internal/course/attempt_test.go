package course

import (
	"testing"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course/coursetest"
	"github.com/fairlead-io/fairlead/operations/internal/record"
)

// TestARetryHasTheKeyOfTheFirstTry: in addition, every replica gives the first attempt the same id.
func TestARetryHasTheKeyOfTheFirstTry(t *testing.T) {
	t.Parallel()
	of := record.Target{Purpose: record.Main, ID: "w"}
	keys := func(op *v1alpha1.Operation) (first, second, attempt string) {
		Begin(epoch, coursetest.Version)(op)
		attempt = NewAttempt(op, of)
		Attempt(op, of, attempt, 0, epoch)(op)
		first = record.Entry(&op.Status, of).IdempotencyKey
		Attempt(op, of, NewAttempt(op, of), 0, epoch)(op)
		return first, record.Entry(&op.Status, of).IdempotencyKey, attempt
	}
	request := func(id string) *v1alpha1.Operation {
		return coursetest.Requested(func(op *v1alpha1.Operation) {
			op.Spec.OperationID, op.Spec.WebhookIDs = id, []v1alpha1.WebhookID{"w"}
		})
	}
	first, second, attempt := keys(request("one"))
	if first == "" || first != second {
		t.Errorf("the key of the first try is %q, that of the second %q", first, second)
	}
	if again, _, other := keys(request("one")); again != first || other != attempt {
		t.Errorf("another replica has key %q and attempt %q, want %q and %q", again, other, first, attempt)
	}
	if next, _, other := keys(request("two")); next == first || other == attempt {
		t.Errorf("the next request has key %q and attempt %q, too", next, other)
	}
}
