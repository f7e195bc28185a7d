package e2e_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

// Prepare is called when kube-apiserver serves, and before the garbage collector looks for kinds.
func TestPrepare(t *testing.T) {
	t.Parallel()
	dir, calls := t.TempDir(), 0
	started := func() bool {
		_, err := os.Stat(filepath.Join(dir, "kube-controller-manager.log"))
		return err == nil
	}
	clustertest.Start(t, cluster.Options{
		Dir: dir, ControllerManager: true, Prepare: func(_ context.Context, cfg *rest.Config) error {
			if calls++; started() {
				t.Error("kube-controller-manager has started before")
			}
			client, err := kubernetes.NewForConfig(cfg)
			if err == nil {
				_, err = client.Discovery().ServerVersion()
			}
			return err
		},
	})
	if !started() || calls != 1 {
		t.Errorf("after %d calls kube-controller-manager has a log: %t", calls, started())
	}
}

// A failure of Prepare is that of Start.
func TestPrepareFails(t *testing.T) {
	t.Parallel()
	failed := errors.New("no luck")
	c, err := cluster.Start(t.Context(), cluster.Options{
		Prepare: func(context.Context, *rest.Config) error { return failed },
	})
	if !errors.Is(err, failed) {
		t.Errorf("the start returns %v", err)
	}
	if err == nil {
		c.Stop()
	}
}
