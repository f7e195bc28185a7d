package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/testbed/command"
)

// atOnce is the number of parallel tests, unless the command line has another one. They mostly wait, for instance a
// second after a failed watch.
const atOnce = "16"

// TestMain makes the test binary the program fairlead if it is called by that name.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testscript.Main(leakChecked{m}, map[string]func(){"fairlead": main})
}

// leakChecked fails if tests leave goroutines behind.
type leakChecked struct{ m *testing.M }

// Run implements testscript.TestingM.
func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestExamples: the help of every command that does something has an example.
func TestExamples(t *testing.T) {
	t.Parallel()
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			look(child)
		}
		if !cmd.HasSubCommands() && !strings.Contains(cmd.Example, "  "+cmd.CommandPath()) {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
	look(newRootCommand(cli.Streams{}))
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:  "testdata",
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": command.Exits},
	})
}
