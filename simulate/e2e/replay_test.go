// Package e2e_test replays what package simulate finds in its model of a cluster on real control planes.
package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/simulate"
	"github.com/fairlead-io/fairlead/simulate/internal/toys"
)

// definition is the file of the toys' kind in the directory of package simulate.
const definition = "testdata/widgets.yaml"

// program is the name of the bug whose subject this process is, instead of running tests.
var program = flag.String("program", "", "")

func TestMain(m *testing.M) {
	flag.Parse()
	if _, err := os.Stat(definition); err != nil { // not in a child, which begins where its parent is
		if err := os.Chdir(".."); err != nil {
			panic(err)
		}
	}
	if *program == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err == nil {
		err = find(*program).Subject(false).Start(ctx, cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func find(name string) toys.Bug {
	all := toys.Bugs()
	return all[slices.IndexFunc(all, func(b toys.Bug) bool { return b.Name == name })]
}

// These variables tell a process of TestReplay what TestSearch has to do.
const (
	bugVariable     = "TOY_BUG"     // its name
	outVariable     = "TOY_OUT"     // directory of findings
	commandVariable = "TOY_COMMAND" // "true": the subject is a program on a real control plane
)

// TestSearch is the test that a user would write for the toy in bugVariable. TestReplay runs it.
func TestSearch(t *testing.T) {
	name := os.Getenv(bugVariable)
	if name == "" {
		return
	}
	bug := find(name)
	subject, parts := bug.Subject(false), append(bug.Parts, simulate.Schedules(40))
	if os.Getenv(commandVariable) != "" {
		subject.Start, parts = nil, append(parts, simulate.Command(os.Args[0], "-program="+name))
	}
	simulate.Test(t, subject, append(parts, simulate.Out(os.Getenv(outVariable)))...)
}

// search runs TestSearch, which has to find the bug, and returns the plan of the finding.
func search(t *testing.T, bug toys.Bug, env ...string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSearch$", "-test.v")
	cmd.Env = append(append(os.Environ(), bugVariable+"="+bug.Name, outVariable+"="+out), env...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("no finding, error %v:\n%s", err, text)
	}
	plan, err := os.ReadFile(filepath.Join(out, "1.json"))
	if err != nil || !strings.Contains(string(text), "simulate: finding 1 ("+string(bug.Verdict)) ||
		!strings.Contains(string(text), bug.Says) {
		t.Fatalf("the finding is not %s about %s, error %v:\n%s", bug.Verdict, bug.Says, err, text)
	}
	return string(plan)
}

// TestReplay checks that the model of a cluster is as the real one: what the search finds there for a function repeats
// for a program on a real control plane. It tries one of the bugs, which follows from the seed. FAIRLEAD_SOAK=1 tries
// all.
func TestReplay(t *testing.T) {
	_, err := cluster.Build(t.Context(), cluster.BuildOptions{ControllerManager: true, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	bugs := toys.Bugs()
	if os.Getenv("FAIRLEAD_SOAK") == "" {
		i := seed.New(t).IntN(len(bugs))
		bugs = bugs[i : i+1]
	}
	for _, bug := range bugs {
		t.Run(bug.Name, func(t *testing.T) {
			plan := search(t, bug)
			t.Log(plan)
			search(t, bug, "FAIRLEAD_SIMULATE_PLAN="+plan, commandVariable+"=true")
		})
	}
}
