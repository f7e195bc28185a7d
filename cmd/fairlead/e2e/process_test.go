package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Documented exit codes of the program.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2

	leaseName      = "fairlead-controller"
	callbackSecret = "fairlead-callback-key"
	groupDefault   = "fairlead-controller-shards"
	noSuchObject   = "the object does not exist, or you may not get it"
)

// fairlead runs the program until it ends, and returns its exit code and what it printed.
func fairlead(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "fairlead", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return code, stdout.String(), stderr.String()
}

// process is a running controller.
type process struct {
	*exec.Cmd
	mu      sync.Mutex // guards the log until the process has ended
	log     *bytes.Buffer
	address chan string // of its HTTP API
	ended   chan error
}

// controller starts a controller as a process of its own.
func (s *site) controller(kubeconfig string, args ...string) *process {
	s.t.Helper()
	return s.start(append([]string{"--kubeconfig", kubeconfig, "--namespace", s.namespace}, args...)...)
}

// start starts a controller with these arguments.
func (s *site) start(args ...string) *process {
	s.t.Helper()
	cmd := exec.CommandContext(s.ctx, "fairlead",
		append([]string{"controller", "--listen", "127.0.0.1:0", "--allow-target", "127.0.0.1"}, args...)...)
	cmd.SysProcAttr, cmd.Env = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, append(os.Environ(), s.env...)
	p := &process{Cmd: cmd, log: &bytes.Buffer{}, address: make(chan string, 1), ended: make(chan error, 1)}
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			fmt.Fprintln(p.log, lines.Text())
			p.mu.Unlock()
			if _, at, ok := strings.Cut(lines.Text(), "address="); ok {
				select {
				case p.address <- at:
				default: // it was signaled before
				}
			}
		}
		p.ended <- cmd.Wait()
	}()
	s.t.Cleanup(func() {
		_ = p.Process.Kill() // it may have ended
		<-done
	})
	return p
}

// end waits for the end of a process, after which its log may be read.
func (p *process) end(ctx context.Context, t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-ctx.Done():
		t.Fatal("the controller does not end")
		return nil
	}
}
