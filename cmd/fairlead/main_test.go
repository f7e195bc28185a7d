package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// TestHelpIsReadable asserts that lines of help have at most 120 characters, and that each flag names its value. No
// default is an empty list, or a list with an empty element, which pflag shows in brackets.
func TestHelpIsReadable(t *testing.T) {
	t.Parallel()
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			look(child)
		}
		for line := range strings.Lines(cmd.Long) {
			if len([]rune(strings.TrimSuffix(line, "\n"))) > 120 {
				t.Errorf("the help of %s has a line of more than 120 characters: %s", cmd.CommandPath(), line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); value == "string" || value == "strings" || value == "stringArray" {
				t.Errorf("the help of %s --%s does not name the value", cmd.CommandPath(), f.Name)
			}
		})
		usages := cmd.LocalFlags().FlagUsages()
		if strings.Contains(usages, "(default [])") || strings.Contains(usages, ",])") {
			t.Errorf("the help of %s shows an empty default in brackets:\n%s", cmd.CommandPath(), usages)
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
