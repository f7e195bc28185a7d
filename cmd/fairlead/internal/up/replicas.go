package up

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/child"
)

// maxControllers bounds --controllers.
const maxControllers = 16

// restartDelay is the delay before a crashed controller is restarted.
const restartDelay = time.Second

// replicas runs the controllers of up --controllers: separate processes that share the operations.
type replicas struct {
	program    string
	dir        string // of the logs
	kubeconfig string
	o          controller.Options

	mu  sync.Mutex // guards writes to out
	out io.Writer
}

// newReplicas returns the controllers of a control plane, without starting them. They report to out.
func newReplicas(out io.Writer, dir, kubeconfig string, o controller.Options) (*replicas, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start controllers: %w", err)
	}
	return &replicas{program: program, dir: dir, kubeconfig: kubeconfig, o: o, out: out}, nil
}

// run keeps n controllers running until ctx ends, and returns when all have ended. ready is called when each was ready
// once. A controller that dies later is restarted at the same address.
func (r *replicas) run(ctx context.Context, n int, ready func()) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running, starting sync.WaitGroup
	starting.Add(n)
	for i := range n {
		running.Go(func() {
			started := sync.OnceFunc(starting.Done)
			defer started() // after fail, so that ready is not called
			if err := r.keepRunning(ctx, i+1, started); err != nil {
				fail(err)
			}
		})
	}
	starting.Wait()
	if ctx.Err() == nil {
		ready()
	}
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// keepRunning keeps one controller running. started is called whenever it becomes ready.
func (r *replicas) keepRunning(ctx context.Context, i int, started func()) error {
	listen := r.o.Serve.Listen
	if host, _, err := net.SplitHostPort(listen); i > 1 && err == nil {
		listen = net.JoinHostPort(host, "0")
	}
	path := filepath.Join(r.dir, fmt.Sprintf("controller-%d.log", i))
	log, err := openLog(path)
	if err != nil {
		return err
	}
	defer log.Close()
	for wasReady := false; ; {
		serving := make(chan int, 1) // the process id
		var address string
		ended := make(chan error, 1)
		alive, died := context.WithCancel(ctx)
		go func() {
			defer died()
			ended <- r.runProcess(ctx, listen, log, func(at string, process int) {
				address = at
				serving <- process
			})
		}()
		select {
		case process := <-serving:
			listen = address // receivers must find it there after a restart
			if awaitReady(alive, "http://"+address+"/readyz") == nil {
				r.say("operations controller %d ready, process %d, HTTP API at http://%s/operations, log in %s",
					i, process, address, path)
				r.say("console of controller %d at http://%s/console/", i, address)
				wasReady = true
				started()
			}
			err = <-ended
		case err = <-ended:
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case !wasReady:
			err = cmp.Or(err, errors.New("without an error"))
			return fmt.Errorf("operations controller %d ended: %w (see %s)", i, err, path)
		}
		r.say("operations controller %d ended: %v; restarting it", i, err)
		if backoff.Pause(ctx, restartDelay) != nil {
			return nil
		}
	}
}

func (r *replicas) say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cli.Say(r.out, format, args...)
}

// runProcess runs one process until it ends. At the end of ctx it is stopped gracefully. serving is called with the
// address of its HTTP API.
func (r *replicas) runProcess(
	ctx context.Context, listen string, log io.Writer, serving func(at string, process int),
) error {
	args := []string{
		"controller", "--kubeconfig", r.kubeconfig, "--shards", "--system-namespace", "default",
		"--insecure-no-auth", "--listen", listen, "--drain", r.o.Drain.String(),
		"--credentials", r.o.Targets.Credentials,
	}
	for _, target := range r.o.Targets.Allow {
		args = append(args, "--allow-target", target)
	}
	for _, target := range r.o.Targets.Deny {
		args = append(args, "--deny-target", target)
	}
	cmd := exec.CommandContext(ctx, r.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = r.o.Drain + controller.StopMargin
	cmd.SysProcAttr = child.Attr()
	out, in := io.Pipe()
	cmd.Stderr = in
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = in.Close() }() // it never fails
	runtime.LockOSThread()            // required by child.Attr
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	reading.Go(func() {
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadString('\n')
			_, _ = io.WriteString(log, line) // ignored, for example if the disk is full
			if at, ok := controller.ServedAddress(line); ok {
				serving(at, cmd.Process.Pid)
			}
			if err != nil {
				return
			}
		}
	})
	return cmd.Wait()
}

// awaitReady returns when a server is ready or ctx has ended. A starting control plane asks clients to retry after a
// second.
func awaitReady(ctx context.Context, url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := client.Do(r); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open log: %w", err)
	}
	return f, nil
}
