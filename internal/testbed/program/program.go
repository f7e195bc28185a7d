// Package program builds and runs a program, for the black-box tests in the e2e directory of its package.
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

// Program is a program that Main builds. The zero value is ready to use. A Program must not be copied.
type Program struct {
	// Package is the package to build. The default is the parent directory of the tested package.
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

// Options configure Start.
type Options struct {
	Args []string
	// Env is added to the environment of the test. Entries are NAME=value.
	Env []string
	// Config is the control plane of KUBECONFIG. If it is nil, KUBECONFIG is not changed.
	Config *rest.Config
}

// Process is a running program.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended

	mu      sync.Mutex
	output  strings.Builder // stdout and stderr
	seen    int             // bytes of output that Expect has read
	written chan struct{}   // closed and replaced at each write
	err     error           // of cmd.Wait
	ended   bool            // Stop, Kill or Wait was called
}

// Start starts the program. The end of the test stops the program, and the test fails if the program exits with an
// error.
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
		runtime.LockOSThread() // the kernel kills the program when the thread that started it ends
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

// Write appends output of the program. Package exec calls it.
func (r *Process) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.written)
	r.written = make(chan struct{})
	return r.output.Write(p)
}

// Output returns the output of the program so far.
func (r *Process) Output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String()
}

// Expect returns the next line that contains text. The test fails if there is none within testlimit.Wait. The next
// call continues after that line.
func (r *Process) Expect(text string) string {
	r.t.Helper()
	timeout := time.NewTimer(testlimit.Wait)
	defer timeout.Stop()
	for {
		ended := isClosed(r.done) // before the output is read, so that a true value means complete output
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

// Wait waits until the program has ended. The test fails if the program ends with an error or still runs when ctx
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

// Stop sends SIGTERM to the program and waits until it has ended.
func (r *Process) Stop() {
	r.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testlimit.Wait)
	defer cancel()
	r.Wait(ctx)
}

// Kill kills the program, as a crash would. The test fails if the program has already ended.
func (r *Process) Kill() {
	r.t.Helper()
	r.ended = true
	if isClosed(r.done) {
		r.t.Fatalf("the program has ended by itself: %v\n%s", r.err, r.Output())
	}
	r.kill()
}

func (r *Process) kill() {
	_ = r.cmd.Process.Kill() // fails only if the process has just ended
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
