// Package e2e_test tests package console on a real control plane, with the accounts and rights of users. Some tests look at
// its pages with Chromium, as people do: at those of the operations controller as a process of its own, with operations in
// all states. It is a module of its own because of the driver of the browser.
//
// The tests write screenshots of all pages into the directory that FAIRLEAD_SCREENSHOTS names. Otherwise they write one of
// a page at which a test fails, into the directory of the test's output (go test -artifacts).
package e2e_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/operation/install"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(env.Main(m)) }

// serve starts a console on the shared control plane.
func serve(t *testing.T, change func(*console.Options)) *consolebed.World {
	t.Helper()
	cfg := env.Config(t)
	calls, err := call.New(call.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	if err := install.CRDs(t.Context(), calls); err != nil {
		t.Fatal(err)
	}
	return consolebed.New(t, cfg, env.Namespace(t), change)
}
