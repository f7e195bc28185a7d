package op

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func TestDescribeLocks(t *testing.T) {
	t.Parallel()
	op := &v1alpha1.Operation{}
	op.Namespace, op.Name, op.CreationTimestamp = "team-a", "app-1", metav1.NewTime(time.Unix(1_790_000_000, 0))
	op.Spec.OperationID, op.Spec.ResourceType, op.Spec.ResourceID = "one", "app", "1"
	for _, id := range []string{"1", "2"} {
		op.Spec.RelatedResources = append(op.Spec.RelatedResources,
			v1alpha1.RelatedResource{ResourceReference: v1alpha1.ResourceReference{
				ResourceType: "cache",
				ResourceID:   id,
			}},
			v1alpha1.RelatedResource{
				ResourceReference: v1alpha1.ResourceReference{ResourceType: "db", ResourceID: id},
				Lock:              true,
			})
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

// TestMissingWebhookIsShown: all views of an operation name the webhook that does not exist.
func TestMissingWebhookIsShown(t *testing.T) {
	t.Parallel()
	const what = "for webhook nowhere, which does not exist in namespace team-a"
	op := &v1alpha1.Operation{}
	op.Spec.OperationID, op.Spec.ResourceType, op.Spec.ResourceID = "one", "app", "1"
	op.Status.OperationID, op.Status.Phase = "one", v1alpha1.PhaseInProgress
	op.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWaitingForWebhook,
		Message: "waiting " + what,
	}}
	v := operations.ViewOf(op)
	var described, table strings.Builder
	if err := errors.Join(describeOperation(&described, op), showTable(&table, []listed{{View: v}})); err != nil {
		t.Fatal(err)
	}
	for where, got := range map[string]string{"wait": progressLine(v), "list": table.String()} {
		if !strings.Contains(got, "waiting "+what) {
			t.Errorf("%s does not say it:\n%s", where, got)
		}
	}
	if got := strings.Join(strings.Fields(described.String()), " "); !strings.Contains(got, "Waiting: "+what) {
		t.Errorf("describe does not say it:\n%s", described.String())
	}
}

// TestTableOfAllNamespaces: the column exists only if operations of several namespaces are listed.
func TestTableOfAllNamespaces(t *testing.T) {
	t.Parallel()
	v := operations.View{ResourceType: "app", ResourceID: "1"}
	for namespace, want := range map[string]string{
		"":       "RESOURCE TYPE CATEGORY STATUS DONE AGE REASON app/1 - 0/0 - -",
		"team-a": "NAMESPACE RESOURCE TYPE CATEGORY STATUS DONE AGE REASON team-a app/1 - 0/0 - -",
	} {
		var table strings.Builder
		if err := showTable(&table, []listed{{Namespace: namespace, View: v}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(table.String()), " "); got != want {
			t.Errorf("namespace %q: %s, want %s", namespace, got, want)
		}
	}
}

// TestHostileText shows an operation whose caller and receiver have sent control characters.
func TestHostileText(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2J\nb\tc\u009b31m\u202e\u2028"
	op := &v1alpha1.Operation{}
	op.Spec.OperationID, op.Spec.OperationCategory, op.Spec.CorrelationID = "one", hostile, hostile
	op.Spec.ResourceType, op.Spec.ResourceID = hostile, hostile
	op.Spec.RelatedResources = []v1alpha1.RelatedResource{{ResourceReference: op.Spec.ResourceReference}}
	op.Status.OperationID, op.Status.Phase = "one", v1alpha1.PhaseFailed
	op.Status.Webhooks = []v1alpha1.WebhookCallStatus{{
		WebhookID: "w", State: v1alpha1.PhaseInProgress,
		Message: hostile,
	}}
	op.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionError, Status: metav1.ConditionTrue, Reason: "WebhookFailed", Message: hostile},
	}
	v := operations.ViewOf(op)
	var out strings.Builder
	if err := errors.Join(describeOperation(&out, op), showTable(&out, []listed{{View: v}})); err != nil {
		t.Fatal(err)
	}
	out.WriteString(cli.Plain(progressLine(v)) + cli.Plain(endLine(v)))
	if got := out.String(); strings.ContainsAny(got, "\x1b\t\u009b\u202e\u2028") || strings.Contains(got, "\nb") {
		t.Errorf("a terminal would obey:\n%q", got)
	}
}

func TestDescribeCalls(t *testing.T) {
	t.Parallel()
	op := &v1alpha1.Operation{}
	op.Spec.OperationID, op.Status.OperationID, op.Status.Phase = "one", "one", v1alpha1.PhaseInProgress
	op.Status.Webhooks = []v1alpha1.WebhookCallStatus{
		{WebhookID: "first", State: v1alpha1.PhaseSuccess, LastStatusCode: 200},
		{WebhookID: "repeated", State: v1alpha1.PhaseInProgress, LastStatusCode: 503, RetriesCount: 2},
		{WebhookID: "silent", State: v1alpha1.PhaseInProgress, Message: "no answer"},
	}
	var out strings.Builder
	if err := describeOperation(&out, op); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"first Success 1 try HTTP 200", "repeated In Progress 3 tries HTTP 503", "silent In Progress 1 try - no answer",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
