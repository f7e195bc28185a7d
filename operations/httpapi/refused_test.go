package httpapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestRefused: an API server also answers with 403 if no right is missing, for instance in admission.
func TestRefused(t *testing.T) {
	t.Parallel()
	const user = `User "system:serviceaccount:fairlead:controller"`
	for name, tc := range map[string]struct {
		reason, said      string
		terminating       bool
		cause, title, say string
	}{
		"Right": {
			"The right that the server of the HTTP API lacks is named.",
			user + ` cannot create resource "operations" in API group "fairlead.io" in the namespace "prod"`, false,
			httpapi.CauseServerLacksRight, "Forbidden", "the server itself lacks the right",
		},
		"Quota": {
			"A quota is not a missing right.",
			"exceeded quota: few, requested: count/operations.fairlead.io=1, used: count/operations.fairlead.io=2, " +
				"limited: count/operations.fairlead.io=2", false,
			httpapi.CauseQuotaExceeded, "Quota exceeded", "ResourceQuota few refuses",
		},
		"QuotaNotCounted": {
			"Nor is one that was just made.", "status unknown for quota: few, resources: count/operations.fairlead.io", false,
			httpapi.CauseQuotaExceeded, "Quota exceeded", "ResourceQuota few refuses",
		},
		"Terminating": {
			"No object is created in a namespace that is being deleted.",
			"unable to create new content in namespace prod because it is being terminated", true,
			httpapi.CauseNamespaceTerminating, "The namespace is being terminated", "Wait until it is gone",
		},
		"Webhook": {
			"Nor is the refusal of another admission.", `admission webhook "guard.example.com" denied the request: no`, false,
			httpapi.CauseAdmissionDenied, "Refused by admission", "admission webhook guard.example.com refuses",
		},
		"Unknown": {"An unknown cause is not guessed.", "no", false, "", "Forbidden", "the API server refuses"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := apierrors.NewForbidden(v1alpha1.OperationsResource.GroupResource(), "app-1", errors.New(tc.said))
			if tc.terminating {
				err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			}
			p := httpapi.ProblemOf(fmt.Errorf("cannot schedule: %w", err))
			got := []any{p.Status, p.Title, p.Cause}
			if diff := cmp.Diff([]any{http.StatusForbidden, tc.title, tc.cause}, got); diff != "" {
				t.Errorf("%s -want +got:\n%s", tc.reason, diff)
			}
			if !strings.Contains(p.Detail, tc.say) || !strings.Contains(p.Detail, tc.said) {
				t.Errorf("%s The answer is %q.", tc.reason, p.Detail)
			}
			if strings.Contains(p.Detail, "lacks the right") != (name == "Right") {
				t.Errorf("%s It names a right: %q.", tc.reason, p.Detail)
			}
		})
	}
}
