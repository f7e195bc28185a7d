package cluster_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster"
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
	c, err := cluster.Start(ctx, cluster.Options{Dir: dir, UnsafeNoFsync: true})
	if err != nil {
		fmt.Println("failed:", err)
		return 1
	}
	defer c.Stop()
	fmt.Println(c.PIDs())
	<-ctx.Done()
	return 0
}
