package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

var env clustertest.Env

func TestMain(m *testing.M) {
	testscript.Main(env.Main(m), map[string]func(){"fairlead": main, "kubectl-fairlead": main})
}

// TestExamples wants an example in the help of every command that does something.
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
	look(newRootCommand(streams{}))
}

func TestScripts(t *testing.T) {
	t.Parallel()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			// Scripts have a home of their own, and must share what is expensive to build.
			for _, name := range []string{"HOME", "XDG_CACHE_HOME"} {
				env.Setenv(name, os.Getenv(name))
			}
			for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOFLAGS", "GOSUMDB"} {
				value, err := exec.Command(goCommand, "env", name).Output()
				if err != nil {
					return err
				}
				env.Setenv(name, string(value[:len(value)-1]))
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"waitfile": waitFile,
			"waitlog":  waitLog,
			"exits":    exits,
		},
	})
}
