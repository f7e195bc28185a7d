package up

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/child"
)

// maxControllers bounds --controllers.
const maxControllers = 16

// beginAgain is the delay before a crashed controller is restarted.
const beginAgain = time.Second

// crew runs the controllers of up --controllers: separate processes that share the operations.
type crew struct {
	s       cli.Streams
	cluster *cluster.Cluster
	program string
	o       controller.Options

	mu sync.Mutex // guards the output
}

// newCrew returns a crew for a control plane, without starting it.
func (o *upOptions) newCrew(s cli.Streams, c *cluster.Cluster) (*crew, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start controllers: %w", err)
	}
	return &crew{s: s, cluster: c, program: program, o: o.controller}, nil
}

// run keeps n controllers running until ctx ends, and returns when all have ended. ready is called when each was ready
// once. A controller that dies later is restarted at the same address.
func (k *crew) run(ctx context.Context, n int, ready func()) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running, starting sync.WaitGroup
	starting.Add(n)
	for i := range n {
		running.Go(func() {
			if err := k.keep(ctx, i+1, sync.OnceFunc(starting.Done)); err != nil {
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

// keep keeps one controller running. up is called when it is ready for the first time, or can never be.
func (k *crew) keep(ctx context.Context, i int, up func()) error {
	defer up()
	listen := k.o.Serve.Listen
	if host, _, err := net.SplitHostPort(listen); i > 1 && err == nil {
		listen = net.JoinHostPort(host, "0")
	}
	path := filepath.Join(k.cluster.Dir(), fmt.Sprintf("controller-%d.log", i))
	log, err := openLog(path)
	if err != nil {
		return err
	}
	defer log.Close()
	for wasReady := false; ; {
		serving := make(chan int, 1) // the process id
		var address string
		ended := make(chan error, 1)
		alive, over := context.WithCancel(ctx)
		go func() {
			defer over()
			ended <- k.controller(ctx, listen, log, func(at string, process int) {
				address = at
				serving <- process
			})
		}()
		select {
		case process := <-serving:
			listen = address // receivers must find it there after a restart
			if awaitReady(alive, "http://"+address+"/readyz") == nil {
				k.say("operations controller %d ready, process %d, HTTP API at http://%s/operations, log in %s", i, process,
					address, path)
				k.say("console of controller %d at http://%s/console/", i, address)
				wasReady = true
				up()
			}
			err = <-ended
		case err = <-ended:
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case !wasReady:
			return fmt.Errorf("operations controller %d ended: %w (see %s)", i, cmp.Or(err, errors.New("without an error")), path)
		}
		k.say("operations controller %d ended: %v; restarting it", i, err)
		if backoff.Pause(ctx, beginAgain) != nil {
			return nil
		}
	}
}

func (k *crew) say(format string, args ...any) {
	k.mu.Lock()
	defer k.mu.Unlock()
	cli.Say(k.s.Err, format, args...)
}

// controller runs one process until it ends. At the end of ctx it is stopped gracefully. serving is called with the
// address of its HTTP API.
func (k *crew) controller(ctx context.Context, listen string, log io.Writer, serving func(at string, process int)) error {
	args := []string{
		"controller", "--kubeconfig", k.cluster.KubeconfigPath(), "--shards", "--system-namespace", "default",
		"--insecure-no-auth", "--listen", listen, "--drain", k.o.Drain.String(), "--credentials", k.o.Targets.Credentials,
	}
	for _, target := range k.o.Targets.Allow {
		args = append(args, "--allow-target", target)
	}
	for _, target := range k.o.Targets.Deny {
		args = append(args, "--deny-target", target)
	}
	cmd := exec.CommandContext(ctx, k.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = k.o.Drain + controller.StopMargin
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
			if _, at, ok := strings.Cut(line, `msg="HTTP API is served"`); ok {
				_, at, _ = strings.Cut(strings.TrimSpace(at), "address=")
				serving(at, cmd.Process.Pid)
			}
			if err != nil {
				return
			}
		}
	})
	return cmd.Wait()
}
