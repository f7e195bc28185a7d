package clustertest_test

import (
	"testing"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }

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
