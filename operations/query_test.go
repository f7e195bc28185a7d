package operations

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	op := func(change ...func(*v1alpha1.Operation)) *v1alpha1.Operation {
		op := &v1alpha1.Operation{
			ObjectMeta: metav1.ObjectMeta{UID: "1"},
			Spec: v1alpha1.OperationSpec{
				OperationID: "a", OperationType: Delete, OperationCategory: "cleanup", CorrelationID: "r-1",
				ResourceReference: v1alpha1.ResourceReference{ResourceType: "Application", ResourceID: "shop"},
				RelatedResources: []v1alpha1.RelatedResource{
					{ResourceReference: v1alpha1.ResourceReference{ResourceType: "Database", ResourceID: "7"}},
				},
			},
		}
		for _, change := range change {
			change(op)
		}
		return op
	}
	failed := func(id string) func(*v1alpha1.Operation) {
		return func(op *v1alpha1.Operation) {
			op.Status.OperationID, op.Status.Phase = id, v1alpha1.PhaseFailed
		}
	}
	for _, c := range []struct {
		reason  string
		query   Query
		op      *v1alpha1.Operation
		matches bool
		values  url.Values
	}{
		{"an empty query selects everything", Query{}, op(), true, url.Values{}},
		{
			"all of the spec is selected by the API server, too",
			Query{Type: Delete, Category: "cleanup", CorrelationID: "r-1", ResourceType: "Application", Limit: 3, Continue: "t"},
			op(), true,
			url.Values{"limit": {"3"}, "continue": {"t"}, "fieldSelector": {"spec.correlationID=r-1," +
				"spec.operationCategory=cleanup,spec.operationType=Delete,spec.resourceType=Application"}},
		},
		{"another type", Query{Type: Create}, op(), false, url.Values{"fieldSelector": {"spec.operationType=Create"}}},
		{"another category", Query{Category: "x"}, op(), false, url.Values{"fieldSelector": {"spec.operationCategory=x"}}},
		{"another request", Query{CorrelationID: "x"}, op(), false, url.Values{"fieldSelector": {"spec.correlationID=x"}}},
		{
			"another type of resources",
			Query{ResourceType: "x"},
			op(), false,
			url.Values{"fieldSelector": {"spec.resourceType=x"}},
		},
		{"a related resource", Query{Related: Resource{Type: "Database", ID: "7"}}, op(), true, url.Values{}},
		{"another related resource", Query{Related: Resource{Type: "Database", ID: "8"}}, op(), false, url.Values{}},
		{
			"an operation that has failed",
			Query{Phase: v1alpha1.PhaseFailed},
			op(failed("a")), true,
			url.Values{"fieldSelector": {"status.phase=Failed"}},
		},
		{
			"the failure of an earlier request is not that of the present one",
			Query{Phase: v1alpha1.PhaseFailed},
			op(failed("b")), false,
			url.Values{"fieldSelector": {"status.phase=Failed"}},
		},
		{
			"a request that replaces a failed one is in progress, which the API server cannot know",
			Query{Phase: v1alpha1.PhaseInProgress},
			op(failed("b")), true,
			url.Values{},
		},
		{
			"so is a request that was not picked up yet",
			Query{Phase: v1alpha1.PhaseInProgress},
			op(), true,
			url.Values{},
		},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			if got := c.query.Matches(c.op); got != c.matches {
				t.Errorf("matches: %v, want %v", got, c.matches)
			}
			got := c.query.values()
			if terms := strings.Split(got.Get("fieldSelector"), ","); len(terms) > 1 { // the order is random
				slices.Sort(terms)
				got.Set("fieldSelector", strings.Join(terms, ","))
			}
			if diff := cmp.Diff(c.values, got); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParsePhase(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]v1alpha1.Phase{
		"In Progress": v1alpha1.PhaseInProgress, "in_progress": v1alpha1.PhaseInProgress,
		"inprogress": v1alpha1.PhaseInProgress, "success": v1alpha1.PhaseSuccess, "FAILED": v1alpha1.PhaseFailed,
		"": "", "Succeeded": "", "Done": "",
	} {
		if got, known := ParsePhase(name); got != want || known != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", name, got, known, want)
		}
	}
}
