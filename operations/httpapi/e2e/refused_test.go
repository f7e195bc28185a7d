package e2e_test

import (
	"encoding/json"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

const somethingToDo = `{"operationType":"Create","resourceType":"app","resourceID":"1","webhookIDs":["x"]}`

// refused schedules an operation that admission refuses, and checks the cause of the answer.
func (a *api) refused(cause string) {
	a.t.Helper()
	w := a.do("all", http.MethodPost, "/operations", somethingToDo)
	var p httpapi.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != http.StatusForbidden || p.Cause != cause {
		a.t.Errorf("not refused because of %s: %d %s", cause, w.Code, w.Body)
	}
}

// TestQuotaOverHTTP: the answer names an exceeded quota, and not a missing right of the server.
func TestQuotaOverHTTP(t *testing.T) {
	a := setup(t, nil, nil)
	none := corev1.ResourceList{"count/operations.fairlead.io": resource.MustParse("0")}
	quotas := a.clients.CoreV1().ResourceQuotas(a.namespace)
	q, err := quotas.Create(a.ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: none},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // as the controller manager sets it
	if _, err := quotas.UpdateStatus(a.ctx, q, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	a.refused(httpapi.CauseQuotaExceeded)
}

// TestTerminatingNamespaceOverHTTP: an answer names the deletion of the namespace as the cause why nothing is
// scheduled.
func TestTerminatingNamespaceOverHTTP(t *testing.T) {
	a := setup(t, nil, nil)
	if err := a.clients.CoreV1().Namespaces().Delete(a.ctx, a.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a.refused(httpapi.CauseNamespaceTerminating)
}
