// Package e2e_test runs fairlead simulate with programs on real control planes.
package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/cluster"
)

const workload = `
- apply: map.yaml
- wait: configmaps/disk
  for: condition=Ready
`

// files writes the workload and returns its path.
func files(t *testing.T, steps string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: disk, labels: {grant: \"\"}}\n")
	return write("workload.yaml", steps)
}

const granted = `
- apply: map.yaml
- wait: configmaps/disk
  for: jsonpath={.metadata.labels.grant}=
`

// build returns the path of a program of this module.
func build(t *testing.T, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, pkg).CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// started is a run of fairlead simulate.
type started struct {
	cmd         *exec.Cmd
	out, errors bytes.Buffer
	temp        string
}

func start(t *testing.T, fairlead string, args ...string) *started {
	t.Helper()
	_, err := cluster.Build(t.Context(), cluster.BuildOptions{ControllerManager: true, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	s := &started{temp: t.TempDir()}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	s.cmd = exec.CommandContext(ctx, fairlead, append([]string{"simulate"}, args...)...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.temp)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.errors
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// end waits for the end, and checks the exit code, the output and that no file is left.
func (s *started) end(t *testing.T, code int, says ...string) {
	t.Helper()
	var exit *exec.ExitError
	if err := s.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text := s.out.String() + s.errors.String()
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("the exit code is %d, want %d", got, code)
	}
	for _, want := range says {
		if !strings.Contains(text, want) {
			t.Errorf("the output does not contain %q", want)
		}
	}
	if left, err := os.ReadDir(s.temp); err != nil || len(left) > 0 {
		t.Errorf("files remain: %v, error %v", left, err)
	}
	if t.Failed() {
		t.Logf("the output is\n%s", text)
	}
}

// A crash between two writes is found, shrunk and replayed from the file of the finding. The repaired program has no
// finding.
func TestFindsLeak(t *testing.T) {
	t.Parallel()
	fairlead, granter, steps, found := build(t, "../../.."), build(t, "./granter"), files(t, granted), t.TempDir()
	args := []string{"--workload", steps, "--faults", "crash", "--schedules", "1"}
	safe := start(t, fairlead, slices.Concat(args, []string{"--", granter, "-safe"})...)
	start(t, fairlead, append(args, "--out", found, "--", granter, "-kubeconfig={kubeconfig}")...).end(t, 1,
		"finding 1 (left over, shown by 3 of 3 replays)",
		"secrets/default/disk-* exists 2 times; without the fault 1",
		"fault:  the subject is killed after the 1st create of secrets/default/disk-*, before the answer",
		"replay: fairlead simulate --replay '{",
	)
	start(t, fairlead, "--workload", steps, "--replay", filepath.Join(found, "1.json"), "--", granter).end(t, 1,
		"secrets/default/disk-* exists 2 times; without the fault 1")
	safe.end(t, 0, "0 findings in 1 schedule ")
}

// A program that cannot be judged leads to exit code 2 and to the end of its output.
func TestNotJudged(t *testing.T) {
	t.Parallel()
	fairlead := build(t, "../../..")
	start(t, fairlead, "--workload", files(t, workload), "--", "sh", "-c", "echo no luck >&2; exit 3").end(t, 2,
		"could not be judged: without faults: the subject ended: exit status 3", "no luck")
	start(t, fairlead, "--workload", files(t, workload), "--", "sleep", "600").end(t, 2,
		"step 2, await Ready of configmaps/disk, was not reached: there is no condition Ready (nothing changed for 20s)",
		"the subject has sent no request to the API server")
}

// Ctrl-C ends the search, and leaves no process and no file behind.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	fairlead := build(t, "../../..")
	pid := filepath.Join(t.TempDir(), "pid")
	s := start(t, fairlead, "--workload", files(t, workload), "--", "sh", "-c", "echo $$ > "+pid+"; sleep 600")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if b, err := os.ReadFile(pid); err == nil && strings.HasSuffix(string(b), "\n") {
			break
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the subject was not started")
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.end(t, 2, "interrupted")
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "kill", "-0", strings.TrimSpace(string(b))).Run(); err == nil {
		t.Errorf("the process %s of the subject still runs", strings.TrimSpace(string(b)))
	}
}
