package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// recorder is a test that records failures instead of failing.
type recorder struct {
	testing.TB
	errors []string
}

func (t *recorder) Errorf(format string, args ...any) {
	t.errors = append(t.errors, fmt.Sprintf(format, args...))
}

// Permitted requests work at once, also after a role is replaced. The failure of another request names it.
func TestLimited(t *testing.T) {
	shared := &env
	ns := shared.Namespace(t)
	at := metav1.ObjectMeta{Namespace: ns, Name: "limited"}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: at.Name}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: ns, Name: "web"}}
	user := "system:serviceaccount:" + ns + ":web"
	for _, verbs := range [][]string{{"list"}, {"list", "create"}} {
		probe := &recorder{TB: t}
		cfg := shared.Limited(probe, user,
			&rbacv1.Role{ObjectMeta: at, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: verbs},
			}},
			&rbacv1.RoleBinding{ObjectMeta: at, RoleRef: ref, Subjects: subjects})
		c := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(ns)
		if _, err := c.List(t.Context(), metav1.ListOptions{}); err != nil || len(probe.errors) > 0 {
			t.Fatalf("a permitted request: %v, failures %q", err, probe.errors)
		}
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
		_, err := c.Create(t.Context(), made, metav1.CreateOptions{})
		if len(verbs) == 2 {
			if err != nil || len(probe.errors) > 0 {
				t.Errorf("a newly permitted request: %v, failures %q", err, probe.errors)
			}
			continue
		}
		if err == nil || len(probe.errors) != 1 || !strings.Contains(probe.errors[0], `cannot create resource "configmaps"`) {
			t.Errorf("a forbidden request: %v, failures %q", err, probe.errors)
		}
	}
}
