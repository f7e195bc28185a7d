package main

import (
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(env.Main(m), goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// The rows, small. However late the watch is, no read through our client is stale.
func TestRows(t *testing.T) {
	var out strings.Builder
	if err := run(env.Config(t), env.Namespace(t), small, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	ours := regexp.MustCompile(`(?m)^\s*\| Fairlead +\| (\S+) \(0 … (\S+)\)`).FindAllStringSubmatch(out.String(), -1)
	if len(ours) != len(small.delays) {
		t.Fatalf("%d rows of ours, want %d", len(ours), len(small.delays))
	}
	for _, m := range ours {
		if m[1] != "0" || m[2] != "0" {
			t.Errorf("stale reads: %s", m[0])
		}
	}
	if !strings.Contains(out.String(), "C3: ") {
		t.Error("C3 is not there")
	}
}
