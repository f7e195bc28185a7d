// Package e2e_test compares the real controllers of Kubernetes with the stand-ins of package controllers.
package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/simulate/internal/controllers/controllerstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every script leads to the same states on a control plane with kube-controller-manager as on the stand-ins, whose test
// compares them with the same files. Only what Dump leaves out may differ.
func TestScripts(t *testing.T) {
	c := clustertest.Start(t, cluster.Options{ControllerManager: true, Kubelet: true})
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range controllerstest.Scripts() {
		t.Run(script.Name, func(t *testing.T) {
			t.Parallel()
			runScript(t, client, clustertest.Namespace(t, c.Config()), script)
		})
	}
}

func runScript(t *testing.T, client kubernetes.Interface, namespace string, script controllerstest.Script) {
	states, err := controllerstest.Read(controllerstest.File("../testdata", script))
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the account", func(ctx context.Context) error { // a pod needs it
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	s := &controllerstest.Session{Interface: client, Ctx: t.Context(), Namespace: namespace}
	for i, step := range script.Steps {
		if step(s); s.Err != nil {
			t.Fatalf("step %d: %v", i, s.Err)
		}
		since, last := time.Time{}, error(nil) // when the state became the wanted one, and why it is not yet
		clustertest.Eventually(t, fmt.Sprintf("the state after step %d", i), func(ctx context.Context) error {
			text, err := controllerstest.Dump(ctx, client, namespace)
			if err != nil {
				return cmp.Or(last, err)
			}
			if diff := gocmp.Diff(strings.Split(states[i], "\n"), strings.Split(text, "\n")); diff != "" {
				since = time.Time{}
				last = fmt.Errorf("(-stand-in +real)\n%s", diff)
				return last
			}
			if since.IsZero() {
				since = time.Now()
			}
			if quiet := time.Since(since); quiet < time.Second {
				return fmt.Errorf("it is reached, but only for %s", quiet)
			}
			return nil
		})
	}
}
