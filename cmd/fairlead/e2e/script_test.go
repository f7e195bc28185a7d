package e2e_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead-io/fairlead/internal/testbed/command"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			// Scripts have their own home directories, and share caches that are expensive to fill.
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
			"exits":    command.Exits,
		},
	})
}

// waitFile waits until a program in the background has created a file: waitfile path
func waitFile(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: waitfile path")
	}
	await(ts, args[0]+" does not appear", func() bool {
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil
	})
}

// waitLog waits until a program in the background has written a text into a file: waitlog path text
func waitLog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitlog path text")
	}
	await(ts, args[0]+" does not say "+args[1], func() bool {
		log, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && bytes.Contains(log, []byte(args[1]))
	})
}

func await(ts *testscript.TestScript, failure string, done func() bool) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(testlimit.Wait)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("%s", failure)
		}
	}
}
