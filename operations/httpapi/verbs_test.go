package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestVerbs: no right permits a caller to change or read what requires another right.
func TestVerbs(t *testing.T) {
	a := setup(t, nil)
	a.user("creator", []string{"create"})
	a.user("updater", []string{"update"})
	a.user("writer", []string{"create", "update"})
	a.user("watcher", []string{"create", "get"})

	const secret = "only with the right to get"
	running := func(name string) {
		a.setStatus(name, func(s *v1alpha1.OperationStatus) {
			s.Phase = v1alpha1.PhaseInProgress
			s.Webhooks = []v1alpha1.WebhookCallStatus{{WebhookID: "w", State: v1alpha1.PhaseInProgress, Message: secret}}
		})
	}
	if got := a.do("creator", "POST", "/operations", deletion, "Idempotency-Key",
		"theirs"); got.status != http.StatusAccepted || a.view(got).OperationID != "theirs" {
		t.Fatalf("create: %+v", got)
	}
	running("app-1")

	// The running operation.
	for user, shown := range map[string]bool{"creator": false, "writer": false, "watcher": true, "all": true} {
		got := a.do(user, "POST", "/operations", deletion, "Idempotency-Key", "mine")
		var p httpapi.Problem
		_ = json.Unmarshal([]byte(got.body), &p) // do has checked it
		named := strings.Contains(got.body, "theirs") || strings.Contains(got.body, secret) || p.OperationID != "" ||
			p.Running != nil
		if got.status != http.StatusConflict || named != shown || p.Title != "Another operation is in progress" {
			t.Errorf("409 for %s: %+v", user, got)
		}
	}

	// A repeated request.
	for user, shown := range map[string]bool{"creator": false, "watcher": true} {
		got := a.do(user, "POST", "/operations", deletion, "Idempotency-Key", "theirs")
		v := a.view(got)
		if got.status != http.StatusAccepted || v.OperationID != "theirs" || v.Status != operations.InProgress ||
			strings.Contains(got.body, secret) != shown {
			t.Errorf("sent again by %s: %+v", user, got)
		}
	}

	// Cancellation.
	for user, shown := range map[string]int{
		"creator": http.StatusForbidden, "watcher": http.StatusForbidden, "updater": http.StatusAccepted,
	} {
		got := a.do(user, "POST", "/operations/app/1:cancel", "")
		if got.status != shown || strings.Contains(got.body, secret) || strings.Contains(got.body, "theirs") {
			t.Errorf("cancelled by %s: %+v", user, got)
		}
	}
	if got := a.do("all", "POST", "/operations/app/1:cancel", ""); got.status != http.StatusAccepted ||
		!strings.Contains(got.body, secret) {
		t.Errorf("canceled with the right to get: %+v", got)
	}

	// The ended operation.
	a.setStatus("app-1", func(s *v1alpha1.OperationStatus) {
		s.Phase = v1alpha1.PhaseFailed
		s.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionError, Status: metav1.ConditionTrue,
			Reason: "WebhookFailed", Message: secret, LastTransitionTime: metav1.Now(),
		}}
	})
	for _, user := range []string{"creator", "watcher"} {
		got := a.do(user, "POST", "/operations", deletion, "Idempotency-Key", "mine")
		if got.status != http.StatusForbidden || !strings.Contains(got.body, "may not update") ||
			strings.Contains(got.body, secret) {
			t.Errorf("%s replaces an ended operation: %+v", user, got)
		}
	}
	if got := a.do("creator", "POST", "/operations", deletion, "Idempotency-Key",
		"theirs"); got.status != http.StatusAccepted || strings.Contains(got.body, secret) ||
		a.view(got).Status != operations.InProgress {
		t.Errorf("a repeated request shows its outcome without the right to get: %+v", got)
	}
	if got := a.do("watcher", "POST", "/operations", deletion, "Idempotency-Key", "theirs"); a.view(got).Error != secret {
		t.Errorf("a repeated request does not show its outcome: %+v", got)
	}
	if got := a.view(a.do("all", "GET", "/operations/app/1", "")); got.OperationID != "theirs" {
		t.Fatalf("it was replaced: %+v", got)
	}
	if got := a.do("writer", "POST", "/operations", deletion, "Idempotency-Key",
		"mine"); got.status != http.StatusAccepted || a.view(got).OperationID != "mine" {
		t.Errorf("the right to update does not permit a replacement: %+v", got)
	}
	// It is in the history now, which requires the same right.
	a.setStatus("app-1", func(s *v1alpha1.OperationStatus) {
		s.Phase = v1alpha1.PhaseSuccess
		s.History = []v1alpha1.FinishedOperation{
			{
				OperationID: "theirs", OperationType: operations.Delete, Phase: v1alpha1.PhaseFailed, Reason: "WebhookFailed",
				FinishedAt: metav1.NowMicro(),
			},
		}
	})
	got := []operations.Status{
		a.view(a.do("creator", "POST", "/operations", deletion, "Idempotency-Key", "theirs")).Status,
		a.view(a.do("watcher", "POST", "/operations", deletion, "Idempotency-Key", "theirs")).Status,
	}
	if diff := cmp.Diff([]operations.Status{operations.InProgress, operations.Failed}, got); diff != "" {
		t.Errorf("a request of long before (-want +got):\n%s", diff)
	}
	// No other request shows it to them.
	for _, request := range [][2]string{
		{"GET", "/operations"},
		{"GET", "/operations/app/1"},
		{"GET", "/operations/app/1/events"},
	} {
		for _, user := range []string{"creator", "updater", "writer"} {
			if got := a.do(user, request[0], request[1], ""); got.status != http.StatusForbidden {
				t.Errorf("%v by %s: %+v", request, user, got)
			}
		}
	}
}
