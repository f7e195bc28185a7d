package up

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
	"github.com/fairlead-io/fairlead/internal/child"
	"github.com/fairlead-io/fairlead/operations/install"
)

// commandGrace bounds the shutdown of a command. Together with the shutdown of the servers it stays under ten seconds.
const commandGrace = 3 * time.Second

// upDrain is how long a shutdown waits for running calls, most likely those to a companion.
const upDrain = 3 * time.Second

func NewCommand(s cli.Streams) *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use:   "up [-- command [argument…]]",
		Short: "Run a Kubernetes control plane and the operations controller on this machine until interrupted",
		Long: `Up runs a real kube-apiserver and etcd, on loopback only, with the custom resources, the operations controller and its
HTTP API, and prints the line that points kubectl and fairlead to them:

	export KUBECONFIG=…

Up also starts the programs of --with, with KUBECONFIG set, and stops them at the end. Quote arguments with spaces as in a shell;
nothing is expanded: --with "'/my tools/receiver' --fail 2".

The first time on a machine it builds the servers, which takes about five minutes and needs Go. All data is in one directory,
so the next up continues with the same objects, credentials and, if it is free, port.

A definition of --crds whose conversion names a Service is applied with the URL https://127.0.0.1:9443 and the path of
the Service instead, where a program on this machine listens; package admission writes the URL of the program there.

With a command, up runs only the control plane and that command, with KUBECONFIG set (and ` + clustertest.EnvVar +
			`, for tests that use package
clustertest), stops when the command ends, and exits with its code:

	fairlead up --temporary -- go test ./...`,
		Example: `  fairlead up                                            # until Ctrl-C; data and credentials stay in .fairlead
  fairlead up --controllers 3                            # three controllers that share the operations
  fairlead up --with 'bin/receiver --fail 2'             # beside a program of yours
  fairlead up --temporary -- go test ./...               # a fresh control plane for one command
  fairlead up --listen 127.0.0.1:9081 --dir /tmp/second  # a second one`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
				return cli.Usagef("unexpected argument %q, a command comes after --", args[0])
			}
			if o.controllers < 1 || o.controllers > maxControllers {
				return cli.Usagef("--controllers %d: want 1 to %d", o.controllers, maxControllers)
			}
			for _, path := range o.crds {
				if _, err := os.Stat(path); err != nil {
					return cli.Usagef("cannot read --crds: %v", err)
				}
			}
			if o.temporary && cmd.Flags().Changed("dir") {
				return cli.Usagef("--dir and --temporary exclude each other")
			}
			for _, line := range o.with {
				words, err := splitWords(line)
				if err != nil {
					return cli.Usagef("cannot read --with %s: %v", cli.ShellQuote(line), err)
				}
				if len(words) == 0 || words[0] == "" {
					return cli.Usagef("--with needs a program")
				}
				o.companions = append(o.companions, words)
			}
			return up(cmd.Context(), s, o, args)
		},
	}
	flags := cmd.Flags()
	o.controller.Serve.NoAuth = true
	flags.DurationVar(&o.controller.Drain, "drain", upDrain,
		"`time` that calls in progress have to finish at the end, before the programs of --with are stopped")
	flags.StringArrayVar(&o.with, "with", nil,
		"`program` to run as well, with arguments split at spaces except in '…' and \"…\" and after \\; may be repeated")
	flags.StringVar(&o.controller.Serve.Listen, "listen", "127.0.0.1:8081", "`address` of the HTTP API, on loopback")
	flags.StringArrayVar(&o.controller.Targets.Allow, "allow-target", []string{"127.0.0.1", "::1", "localhost"},
		"loopback or private `CIDR or host` that webhooks may call; may be repeated")
	o.controller.Targets.Flags(flags)
	flags.IntVar(&o.controllers, "controllers", 1,
		"`number` of operations controllers; several run as separate processes that share the operations, "+
			"each with an HTTP API, and are restarted after a crash")
	flags.StringVar(&o.dir, "dir", ".fairlead", "`directory` for data, credentials and logs")
	flags.BoolVar(&o.temporary, "temporary", false, "use a new directory and remove it at the end; faster, for tests")
	flags.StringVar(&o.cacheDir, "cache-dir", "",
		"`directory` for the built servers (default: in the user's cache directory)")
	flags.StringArrayVar(&o.crds, "crds", nil,
		"`file or directory` with CustomResourceDefinitions to install before anything runs; may be repeated")
	flags.StringArrayVar(&o.apiServerFlags, "apiserver-flag", nil,
		"`flag` for kube-apiserver, such as --v=2; may be repeated")
	return cmd
}

type upOptions struct {
	dir            string
	temporary      bool
	cacheDir       string
	apiServerFlags []string
	crds           []string
	with           []string   // as they were given
	companions     [][]string // programs with their arguments
	controller     controller.Options
	controllers    int
}

func up(ctx context.Context, s cli.Streams, o upOptions, command []string) error {
	if o.temporary {
		o.dir = ""
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: o.dir, CacheDir: o.cacheDir, APIServerFlags: o.apiServerFlags,
		Progress: s.Err,
	})
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	defer func() {
		c.Stop()
		cli.Say(s.Err, "control plane stopped")
	}()
	cli.Say(s.Err, "control plane ready at %s, logs and data in %s", c.Config().Host, c.Dir())
	if len(o.crds) > 0 {
		installing, cancel := context.WithTimeout(ctx, time.Minute)
		err := clustertest.ApplyCRDs(installing, c.Config(), clustertest.CRDFiles(o.crds...))
		if cancel(); err != nil {
			return fmt.Errorf("cannot install the definitions of --crds: %w", err)
		}
	}
	if len(command) > 0 {
		return runCommand(ctx, s, c, command)
	}
	return runAll(ctx, s, c, o)
}

// runAll runs the operations controller and the companions until the context or one of them ends.
func runAll(ctx context.Context, s cli.Streams, c *cluster.Cluster, o upOptions) error {
	calls, err := call.New(call.Options{Config: c.Config()})
	if err != nil {
		return err
	}
	defer calls.Close()
	if err := install.CRDs(ctx, calls); err != nil {
		if ctx.Err() != nil {
			return nil // interrupted, the normal end
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// for the companions: the controller may call them until it has ended
	beside, end := context.WithCancel(context.WithoutCancel(ctx))
	var controller, companions sync.WaitGroup
	defer companions.Wait()
	defer end()
	defer controller.Wait()
	defer cancel(nil)
	run := func(in *sync.WaitGroup, fn func() error) {
		in.Go(func() {
			if err := fn(); err != nil {
				cancel(err)
			}
		})
	}
	ready := make(chan struct{})
	run(&controller, func() error {
		export := func() { cli.Say(s.Out, "export KUBECONFIG=%s", cli.ShellQuote(c.KubeconfigPath())) }
		if o.controllers > 1 {
			k, err := o.newCrew(s, c)
			if err != nil {
				return err
			}
			export()
			return k.run(ctx, o.controllers, func() { close(ready) })
		}
		return runAlone(ctx, s, c, o, export, func() { close(ready) })
	})
	select {
	case <-ready:
	case <-ctx.Done():
		return upError(ctx)
	}
	for _, command := range o.companions {
		run(&companions, func() error { return runCompanion(beside, s, c, command) })
	}
	for _, hint := range o.hints() {
		cli.Say(s.Err, "%s", hint)
	}
	select {
	case <-ctx.Done():
	case <-c.Done():
		cancel(c.Err())
	}
	return upError(ctx)
}

// runAlone runs one controller in this process. serving is called when its HTTP API is served, and ready when it is
// ready.
func runAlone(ctx context.Context, s cli.Streams, c *cluster.Cluster, o upOptions, serving, ready func()) error {
	log, err := openLog(filepath.Join(c.Dir(), "controller.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	return controller.Run(ctx, c.Config(), "default", o.controller, slog.New(slog.NewTextHandler(log, nil)),
		func(at net.Addr) {
			serving()
			asking.Go(func() {
				if awaitReady(ctx, "http://"+at.String()+"/readyz") == nil {
					cli.Say(s.Err, "operations controller ready, HTTP API at http://%s/operations, log in %s", at, log.Name())
					cli.Say(s.Err, "console at http://%s/console/", at)
					ready()
				}
			})
		})
}

// awaitReady returns when a server is ready or ctx has ended. A starting control plane asks clients to retry after a
// second.
func awaitReady(ctx context.Context, url string) error {
	asking := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err := asking.Do(r); err == nil {
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

// upError returns the reason of the end, or nil after an interrupt.
func upError(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// hints returns suggestions for next steps.
func (o *upOptions) hints() []string {
	hints := []string{"", "Copy the export line into another shell, then try:"}
	if len(o.with) > 0 {
		hints = append(hints,
			`  curl -X POST localhost:8080/applications -d '{"name":"shop","webhook":{"url":"http://127.0.0.1:8090/cleanup"}}'`,
			`  curl -i -X DELETE -H 'Prefer: respond-async' localhost:8080/applications/<id>`,
			`  bin/fairlead op wait Application/<id>`,
			`  curl -i localhost:8080/applications/<id>`)
	} else {
		hints = append(hints, `  fairlead op schedule Application/shop --type Delete --wait`)
	}
	if o.controllers > 1 {
		hints = append(hints, `  bin/fairlead shards default/`+controller.DefaultGroup)
	}
	return append(hints, `  bin/fairlead watch operations.fairlead.io -A`, "", "Press Ctrl-C to stop.")
}

func openLog(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open log: %w", err)
	}
	return f, nil
}

// runCompanion runs a program until the context ends. An earlier exit is an error. The program's own messages go to
// stderr.
func runCompanion(ctx context.Context, s cli.Streams, c *cluster.Cluster, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = s.Err, s.Err
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.KubeconfigPath())
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
			return endInterrupted(cmd.Process)
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
			return &cli.ExitError{Code: 128 + int(status.Signal())} // as shells do
		}
		return &cli.ExitError{Code: exit.ExitCode()}
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot run %s: %w", filepath.Base(command[0]), err)
	}
	return nil
}

// interruptGrace is how long a command may take to end on its own after an interrupt.
const interruptGrace = time.Second

// endInterrupted stops a command. Ctrl-C in a terminal reaches the command as well, and many programs treat a second
// signal as a forced stop. Therefore it sends the signal only if the command keeps running.
func endInterrupted(p *os.Process) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(interruptGrace)
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
