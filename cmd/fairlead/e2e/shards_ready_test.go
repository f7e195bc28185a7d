package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

// TestUnreadyMember: a watch with rights on Leases and none on the objects takes half of the slots. After a minute it
// gives them back to the watch that lists the objects. Its log and fairlead shards say why.
func TestUnreadyMember(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	clients := kubernetes.NewForConfigOrDie(s.config)
	const objects = 20
	for i := range objects {
		if _, err := clients.CoreV1().ConfigMaps(s.namespace).Create(s.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), Labels: map[string]string{"shared": "yes"}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	token := s.tokenFor("leases", "")
	role, err := clients.RbacV1().Roles(s.namespace).Get(s.ctx, "leases", metav1.GetOptions{})
	if err == nil {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		})
		_, err = clients.RbacV1().Roles(s.namespace).Update(s.ctx, role, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.authorized(true, s.namespace, "leases", "patch", "coordination.k8s.io", "leases")
	watch := func(token string) *watching {
		return startWatching(t, "configmaps", "-n", s.namespace, "-l", "shared=yes", "--shard-group", s.namespace+"/maps",
			"--shard-by", "uid", "--shard-slots", "16", "--kubeconfig", program.Kubeconfig(t, s.config, token))
	}
	able := watch("")
	able.holds(16)
	able.showing(objects)
	unable := watch(token)
	unable.holds(8)
	able.holds(8)
	s.eventually("fairlead shards says why", func() bool {
		_, out, _ := fairlead(t, "shards", s.namespace+"/maps", "--kubeconfig", s.kubeconfig)
		return strings.Contains(out, "is not ready for its slots") && strings.Contains(out, "forbidden")
	})
	able.holds(16)
	able.showing(objects)
	if log := unable.Errs.String(); !strings.Contains(log, "notReady") || !strings.Contains(log, "orbidden") {
		t.Errorf("the watch without rights does not say why it gives its slots away:\n%s", log)
	}
}
