// Package program builds the program of a package and runs it, for the black-box tests in its directory e2e.
//
//	var (
//		env  clustertest.Env
//		main program.Program
//	)
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(main.Main(env.Main(m))) }
//
//	func TestX(t *testing.T) {
//		p := main.Start(t, program.Options{Config: env.Config(t)})
//		p.Expect("ready")
//		…
//	}
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/internal/child"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// Program is a program that Main builds. The zero value is ready to use; it must not be copied.
type Program struct {
	// Package is the package to build; the parent directory of the tested package by default.
	Package string

	path string
}

// Main returns a Runner that builds the program, runs m, and then removes the program. The program has the race
// detector if the tests have it.
func (p *Program) Main(m clustertest.Runner) clustertest.Runner { return runner{p, m} }

type runner struct {
	program *Program
	tests   clustertest.Runner
}

func (r runner) Run() (code int) {
	if r.program.Package == "" {
		r.program.Package = ".."
	}
	dir, remove, err := Build(r.program.Package, "program")
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
	r.program.path = filepath.Join(dir, "program")
	return r.tests.Run()
}

// Options say how a program runs.
type Options struct {
	Args []string
	// Env is added to the environment of the test, as NAME=value.
	Env []string
	// Config is the control plane that KUBECONFIG names; none if nil.
	Config *rest.Config
}

// Process is a running program.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended

	mu      sync.Mutex
	output  strings.Builder // stdout and stderr
	seen    int             // how much of the output Expect has read
	written chan struct{}   // closed, and made anew, at each write
	err     error           // of cmd.Wait
	ended   bool            // Stop, Kill or Wait has seen the end
}

// Start starts the program. The test stops it at its end, and fails unless the program ends without an error.
func (p *Program) Start(t testing.TB, o Options) *Process {
	t.Helper()
	r := &Process{t: t, done: make(chan struct{}), written: make(chan struct{})}
	r.cmd = exec.Command(p.path, o.Args...)
	r.cmd.Stdout, r.cmd.Stderr = r, r
	r.cmd.WaitDelay = 5 * time.Second
	r.cmd.Env = slices.Concat(os.Environ(), o.Env)
	if o.Config != nil {
		r.cmd.Env = append(r.cmd.Env, "KUBECONFIG="+Kubeconfig(t, o.Config, ""))
	}
	r.cmd.SysProcAttr = child.Attr()
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the program dies with the thread that has started it
		defer close(r.done)
		err := r.cmd.Start()
		started <- err
		if err == nil {
			r.err = r.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !r.ended {
			r.Stop()
		}
	})
	return r
}

// Write takes what the program writes. It implements io.Writer for package exec.
func (r *Process) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.written)
	r.written = make(chan struct{})
	return r.output.Write(p)
}

// Output returns what the program has written so far.
func (r *Process) Output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}

// Expect returns the next line that contains a text; the test fails if none comes within testlimit.Wait. The line after
// it is the first one that the next call looks at.
func (r *Process) Expect(text string) string {
	r.t.Helper()
	timeout := time.NewTimer(testlimit.Wait)
	defer timeout.Stop()
	for {
		ended := isClosed(r.done) // before the output is read, which is whole then
		line, found, written := r.next(text)
		if found {
			return line
		}
		if ended {
			r.t.Fatalf("the program has ended, with %v, and no line of it has %q:\n%s", r.err, text, r.Output())
		}
		select {
		case <-written:
		case <-r.done:
		case <-timeout.C:
			r.t.Fatalf("no line of the program has %q:\n%s", text, r.Output())
		}
	}
}

func (r *Process) next(text string) (line string, found bool, written <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		line, _, whole := strings.Cut(r.output.String()[r.seen:], "\n")
		if !whole {
			return "", false, r.written
		}
		r.seen += len(line) + 1
		if strings.Contains(line, text) {
			return line, true, nil
		}
	}
}

// Wait returns when the program has ended. The test fails if the program ends with an error, or if it runs when ctx
// ends.
func (r *Process) Wait(ctx context.Context) {
	r.t.Helper()
	r.ended = true
	select {
	case <-r.done:
	case <-ctx.Done():
		r.kill()
		r.t.Fatalf("the program has not ended: %v\n%s", context.Cause(ctx), r.Output())
	}
	if r.err != nil {
		r.t.Errorf("the program ended with: %v\n%s", r.err, r.Output())
	}
}

// Stop asks the program to end, by SIGTERM, and waits for that.
func (r *Process) Stop() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testlimit.Wait)
	defer cancel()
	r.Wait(ctx)
}

// Kill ends the program at once, as a crash would. The test fails if the program has ended before.
func (r *Process) Kill() {
	r.t.Helper()
	r.ended = true
	if isClosed(r.done) {
		r.t.Fatalf("the program has ended by itself: %v\n%s", r.err, r.Output())
	}
	r.kill()
}

func (r *Process) kill() {
	_ = r.cmd.Process.Kill() // it fails only if the process has just ended
	<-r.done
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
