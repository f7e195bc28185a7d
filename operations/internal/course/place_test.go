package course

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// placed returns an operation. accepted is its place once it is picked up, whatever its version.
func placed(name, accepted, version string) *v1alpha1.Operation {
	op := &v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
	op.Spec.OperationID = "id"
	if accepted != version {
		op.Status.OperationID, op.Status.Phase, op.Status.AcceptedVersion = "id", v1alpha1.PhaseInProgress, accepted
	}
	return op
}

func TestComesBefore(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		a, b   *v1alpha1.Operation
	}{
		{"the lower version comes first", placed("b", "9", "9"), placed("a", "10", "10")},
		{"a write after it was picked up does not move an operation back", placed("b", "5", "30"), placed("a", "6", "21")},
		{"a write before that does", placed("b", "6", "21"), placed("a", "30", "30")},
		{"one that was picked up before there were places comes first", placed("b", "", "30"), placed("a", "6", "7")},
		{"of two of these, that of the lower name", placed("a", "", "30"), placed("b", "", "20")},
	} {
		if !ComesBefore(tc.a, tc.b) || ComesBefore(tc.b, tc.a) {
			t.Errorf("%s: %v and %v", tc.reason, ComesBefore(tc.a, tc.b), ComesBefore(tc.b, tc.a))
		}
	}
}

// TestOneOrder: of two operations exactly one comes first, and no three of them wait for each other.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	operations := rapid.Custom(func(t *rapid.T) *v1alpha1.Operation {
		return placed(rapid.StringMatching("[a-c]").Draw(t, "name"),
			rapid.SampledFrom([]string{"", "1", "2", "9", "10", "11"}).Draw(t, "accepted"),
			rapid.SampledFrom([]string{"1", "2", "9", "10", "11"}).Draw(t, "version"))
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := operations.Draw(t, "a"), operations.Draw(t, "b"), operations.Draw(t, "c")
		if ComesBefore(a, a) {
			t.Fatal("an operation comes before itself")
		}
		same := a.Name == b.Name && Place(a) == Place(b)
		if ComesBefore(a, b) == ComesBefore(b, a) && !same {
			t.Fatalf("both or neither of two come first: %v", ComesBefore(a, b))
		}
		if ComesBefore(a, b) && ComesBefore(b, c) && !ComesBefore(a, c) {
			t.Fatal("three wait for each other")
		}
	})
}
