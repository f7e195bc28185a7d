// Package e2e_test has the tests of fairlead that need a control plane. They build the program once, and run it as
// processes of its own.
package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var env clustertest.Env

// atOnce is the number of parallel tests, unless the command line has another one. They mostly wait for Leases.
const atOnce = "4"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(withProgram{env.Main(m)})
}

// withProgram runs the tests with a PATH that has the program, as fairlead and as kubectl-fairlead.
type withProgram struct{ tests clustertest.Runner }

// Run implements clustertest.Runner.
func (w withProgram) Run() (code int) {
	var flags []string
	if overlay := os.Getenv("FAIRLEAD_PROCESS_OVERLAY"); overlay != "" { // built by hack/skewed.sh
		flags = []string{"-overlay", overlay}
	}
	dir, remove, err := program.Build("github.com/fairlead-io/fairlead/cmd/fairlead", "fairlead", flags...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := errors.Join(
		os.Symlink("fairlead", filepath.Join(dir, "kubectl-fairlead")),
		os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH")),
	); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return w.tests.Run()
}
