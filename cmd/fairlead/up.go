package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

// commandGrace is what a command gets to end in. With the time that the servers need it stays under ten seconds.
const commandGrace = 3 * time.Second

func newUpCommand(s streams) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up [-- command [argument…]]",
		Short: "Run a Kubernetes control plane on this machine until interrupted",
		Long: `Up runs a real kube-apiserver and etcd, on loopback only, and writes the line that points kubectl to them:

	export KUBECONFIG=…

The first time on a machine it builds them, which takes some minutes and needs Go. Everything is kept in one directory,
so that the next up continues with the same objects, credentials and, if it is free, port.

With a command, up runs that with KUBECONFIG set (and ` + clustertest.EnvVar + `, for tests that use package
clustertest), stops when the command ends, and exits with its code:

	fairlead up --temporary -- go test ./...`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
				return usageErrorf("unexpected argument %q, a command comes after --", args[0])
			}
			if o.temporary && cmd.Flags().Changed("dir") {
				return usageErrorf("--dir and --temporary exclude each other")
			}
			return up(cmd.Context(), s, o, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.dir, "dir", ".fairlead", "`directory` that keeps data, credentials and logs")
	flags.BoolVar(&o.temporary, "temporary", false, "use a fresh directory and remove it at the end; faster, for tests")
	flags.StringVar(&o.cacheDir, "cache-dir", "", "`directory` that keeps the binaries (default: in the user's cache directory)")
	flags.StringArrayVar(&o.apiServerFlags, "apiserver-flag", nil, "`flag` for kube-apiserver, such as --v=2; may be repeated")
	return cmd
}

type upOptions struct {
	dir            string
	temporary      bool
	cacheDir       string
	apiServerFlags []string
}

func up(ctx context.Context, s streams, o upOptions, command []string) error {
	if o.temporary {
		o.dir = ""
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: o.dir, CacheDir: o.cacheDir, APIServerFlags: o.apiServerFlags,
		Progress: cluster.ProgressTo(s.err, 0),
	})
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	defer func() {
		c.Stop()
		say(s.err, "control plane stopped")
	}()
	say(s.err, "control plane ready at %s, logs and data in %s", c.Config().Host, c.Dir())
	if len(command) > 0 {
		return runCommand(ctx, s, c, command)
	}
	say(s.out, "export KUBECONFIG=%s", shellQuote(c.KubeconfigPath()))
	say(s.err, "press Ctrl-C to stop")
	select {
	case <-ctx.Done():
		return nil
	case <-c.Done():
		return c.Err()
	}
}

// runCommand runs a command beside the control plane and ends it when the control plane ends.
func runCommand(ctx context.Context, s streams, c *cluster.Cluster, command []string) error {
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
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath(), clustertest.EnvVar+"="+c.Dir())
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandGrace

	err := cmd.Run()
	if lost := c.Err(); lost != nil {
		return lost
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return &exitError{128 + int(status.Signal())} // as a shell has it
		}
		return &exitError{exit.ExitCode()}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot run %s: %w", filepath.Base(command[0]), err)
	}
	return nil
}

// say writes a line. Nothing better can be done when people can no longer be told.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

// shellQuote returns s as one word of a shell.
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:+@%,=") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
