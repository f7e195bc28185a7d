package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/child"
	"github.com/fairlead-io/fairlead/internal/interrupt"
)

// commandGrace bounds the shutdown of a command after SIGTERM. Together with the shutdown of the servers it stays under
// ten seconds.
const commandGrace = 3 * time.Second

// runProgram runs a program until the context ends. An earlier exit is an error. Its output goes to out.
func runProgram(ctx context.Context, out io.Writer, kubeconfig string, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandGrace
	cmd.SysProcAttr = child.Attr()
	runtime.LockOSThread() // required by child.Attr
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return fmt.Errorf("%s ended: %w", filepath.Base(command[0]), err)
	default:
		return fmt.Errorf("%s ended", filepath.Base(command[0]))
	}
}

// runCommand runs a command beside the control plane, and stops it when the control plane ends.
func runCommand(ctx context.Context, s cli.Streams, c *cluster.Cluster, command []string) error {
	interrupted := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-c.Done():
			cancel(c.Err())
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-watching }()

	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath(), clustertest.EnvVar+"="+c.Dir())
	cmd.Cancel = func() error {
		if interrupted.Err() != nil {
			return endInterrupted(cmd.Process, graceOf(interrupted))
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.WaitDelay = commandGrace

	err := cmd.Run()
	if lost := c.Err(); lost != nil {
		return lost
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			if interrupted.Err() != nil {
				return &cli.ExitError{Code: cli.ExitInterrupted}
			}
			return &cli.ExitError{Code: 128 + int(status.Signal())} // as shells do
		}
		return &cli.ExitError{Code: exit.ExitCode()}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot run %s: %w", filepath.Base(command[0]), err)
	}
	return nil
}

// Times for a command to end on its own after a signal to this process. The first is more than the drain of a runtime.
const (
	interruptGrace = 6 * time.Second // Ctrl-C in a terminal reaches the command, too
	signalGrace    = time.Second
)

// graceOf returns the time that a command has, by the signal that ended ctx.
func graceOf(ctx context.Context) time.Duration {
	if interrupt.Signal(ctx) == os.Interrupt {
		return interruptGrace
	}
	return signalGrace
}

// endInterrupted stops a command that may have received the signal itself. Many programs treat a second signal as a
// forced stop. Therefore it sends the signal only if the command keeps running.
func endInterrupted(p *os.Process, grace time.Duration) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(grace)
	for {
		if err := p.Signal(syscall.Signal(0)); err != nil {
			return err // it has ended
		}
		select {
		case <-tick.C:
		case <-deadline:
			return p.Signal(syscall.SIGTERM)
		}
	}
}
