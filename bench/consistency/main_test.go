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

// TestRows makes small rows. With any lag of the watch, no read through our client is stale, nor is one of
// controller-runtime on our stores. Own writes of our client lead to no reconciliation.
func TestRows(t *testing.T) {
	var out strings.Builder
	if err := run(env.Config(t), env.Namespace(t), small, &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	ours := regexp.MustCompile(`(?m)^\s*\| Fairlead +\| (\S+) \((\S+) … (\S+)\)`).FindAllStringSubmatch(out.String(), -1)
	if len(ours) != len(small.delays)+1 {
		t.Fatalf("%d rows of ours, want %d", len(ours), len(small.delays)+1)
	}
	for i, m := range ours {
		what, want := "stale reads", "0"
		if i == len(small.delays) {
			what, want = "reconciliations", "1"
		}
		if m[1] != want || m[2] != want || m[3] != want {
			t.Errorf("%s: %s, want %s", what, m[0], want)
		}
	}
	line := regexp.MustCompile(`(?m)^\s*\| controller-runtime on our stores +\| (\S+) \((\S+) … (\S+)\)`)
	adapter := line.FindAllStringSubmatch(out.String(), -1)
	if len(adapter) != len(small.delays) {
		t.Fatalf("%d rows of controller-runtime on our stores, want %d", len(adapter), len(small.delays))
	}
	for _, m := range adapter {
		if m[1] != "0" || m[3] != "0" {
			t.Errorf("stale reads: %s, want 0", m[0])
		}
	}
	if !strings.Contains(out.String(), "C3: ") {
		t.Error("the row of C3 is missing")
	}
}
