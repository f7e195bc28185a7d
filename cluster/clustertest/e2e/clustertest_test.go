package e2e_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestNamespace(t *testing.T) {
	t.Parallel()
	first, second := env.Namespace(t), env.Namespace(t)
	if first == second {
		t.Fatalf("both namespaces are %s", first)
	}
	client := kubernetes.NewForConfigOrDie(env.Config(t))
	for _, name := range []string{first, second} {
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}
