// Package e2e_test tests package console on a real control plane, with the accounts and rights of users. Some tests use
// Chromium to look at the pages of an operations controller in its own process, with operations in all states. The
// package is a module of its own because of the driver of the browser.
//
// The tests write screenshots of all pages into the directory that FAIRLEAD_SCREENSHOTS names. Otherwise they write one
// of each page on which a test fails, into the directory of the test's output (go test -artifacts).
package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/operations/install"
)

var env clustertest.Env

func TestMain(m *testing.M) { goleak.VerifyTestMain(runner{env.Main(m)}) }

// runner removes the program that tests have built.
type runner struct{ clustertest.Runner }

func (r runner) Run() int {
	defer func() {
		if built.dir != "" {
			_ = os.RemoveAll(built.dir) // a remaining temporary directory is harmless
		}
	}()
	return r.Runner.Run()
}

// built is the program fairlead.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// fairleadProgram builds the program once, and returns its path.
func fairleadProgram(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // other tests use the program after the test that builds it
		if built.dir, built.err = os.MkdirTemp("", "fairlead-console-"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", built.dir, "./cmd/fairlead")
		build.Dir = "../.."
		if said, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("cannot build fairlead: %w\n%s", err, said)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "fairlead")
}

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
