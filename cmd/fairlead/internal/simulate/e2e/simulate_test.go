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
	"sync"
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
	cmd    *exec.Cmd
	out    bytes.Buffer
	errors progress
	temp   string

	err   error // of the process, set before ended is closed
	ended chan struct{}
}

// progress is what a process has written so far. It is safe for concurrent use.
type progress struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed at the next write; nil: nobody waits
}

func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	return p.text.Write(b)
}

func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// next returns the text so far, and a channel that is closed at the next write.
func (p *progress) next() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.text.String(), p.changed
}

func start(t *testing.T, fairlead string, args ...string) *started {
	t.Helper()
	_, err := cluster.Build(t.Context(), cluster.BuildOptions{ControllerManager: true, Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	s := &started{temp: t.TempDir(), ended: make(chan struct{})}
	s.cmd = exec.CommandContext(ctx, fairlead, append([]string{"simulate"}, args...)...)
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.temp)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.errors
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		s.err = s.cmd.Wait()
	}()
	return s
}

// end waits for the end, and checks the exit code, the output and that no file is left.
func (s *started) end(t *testing.T, code int, says ...string) {
	t.Helper()
	<-s.ended
	var exit *exec.ExitError
	if s.err != nil && !errors.As(s.err, &exit) {
		t.Fatal(s.err)
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

// A program that knows only the configuration in a Pod is given one, and is judged like others.
func TestInPod(t *testing.T) {
	t.Parallel()
	fairlead, granter, steps := build(t, "../../.."), build(t, "./granter"), files(t, granted)
	start(t, fairlead, "--workload", steps, "--faults", "crash", "--schedules", "1", "--", granter, "-pod").end(t, 1,
		"finding 1 (left over, shown by 3 of 3 replays)")
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

// interruptAt sends Ctrl-C when the text appears on stderr.
func (s *started) interruptAt(t *testing.T, text string) {
	t.Helper()
	for {
		so, next := s.errors.next()
		if strings.Contains(so, text) {
			break
		}
		select {
		case <-next:
		case <-s.ended:
			t.Fatalf("it has ended (%v), and %q does not appear on stderr:\n%s", s.err, text, so)
		}
	}
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// Ctrl-C ends the command in each of its phases. It shows the report so far, and leaves no process and no file behind.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	fairlead, granter := build(t, "../../.."), build(t, "./granter")
	for _, tt := range []struct {
		name  string // short, since it is part of the path of a socket
		phase string
		args  []string
		code  int
		says  []string
	}{
		{
			"Reference", "the workload is being played without faults", nil, 2,
			[]string{"0 findings in 0 schedules", "interrupted"},
		},
		{"Search", "1 of ", []string{"-safe"}, 2, []string{"0 findings in 1 schedule ", "interrupted"}},
		{
			"Confirm", "a suspicion is being confirmed: left over: secrets/default/disk-*", nil, 2,
			[]string{"suspicion 1 (left over, not confirmed before the end: shown by 0 of 0 replays)", "interrupted"},
		},
		{
			"Shrink", "a finding is being shrunk", nil, 1,
			[]string{"finding 1 (left over, shown by ", "note:   the search ended before it could look for fewer faults"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(t.TempDir(), "pids")
			args := []string{
				"--workload", files(t, granted), "--faults", "crash", "--for", "15m", "--",
				"sh", "-c", `echo $$ >> "$0"; exec "$@"`, pids, granter,
			}
			s := start(t, fairlead, append(args, tt.args...)...)
			s.interruptAt(t, tt.phase)
			s.end(t, tt.code, tt.says...)
			b, err := os.ReadFile(pids)
			if err != nil && tt.args != nil { // otherwise it may not have been started yet
				t.Fatal(err)
			}
			for _, pid := range strings.Fields(string(b)) {
				if err := exec.CommandContext(t.Context(), "kill", "-0", pid).Run(); err == nil {
					t.Errorf("the process %s of the subject still runs", pid)
				}
			}
		})
	}
}
