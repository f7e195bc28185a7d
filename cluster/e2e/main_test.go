// Package e2e_test tests package cluster with etcd and kube-apiserver. Each test starts a control plane of its own.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// helperDir, when set, makes the test binary a program that runs a control plane in that directory until it is killed.
const helperDir = "CLUSTER_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		os.Exit(helper(dir))
	}
	goleak.VerifyTestMain(m)
}

func helper(dir string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	servers, err := record(ctx, dir)
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(dir, "cluster"), Binaries: servers.binaries, UnsafeNoFsync: true,
		StartTimeout: testlimit.Wait,
	})
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	defer c.Stop()
	etcd, apiServer, err := servers.pids()
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	fmt.Println(etcd, apiServer)
	<-ctx.Done()
	return 0
}
