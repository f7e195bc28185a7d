package up

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// defaultDrain is how long a shutdown waits for running calls, most likely those to a program of --with.
const defaultDrain = 3 * time.Second

// NewCommand returns the command fairlead up.
func NewCommand(s cli.Streams) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "up [-- command [argument…]]",
		Short: "Run a Kubernetes control plane and the operations controller on this machine until interrupted",
		Long: `Up runs a real kube-apiserver and etcd, on loopback only, with the custom resources, the operations controller
and its HTTP API, and prints the line that points kubectl and fairlead to them:

	export KUBECONFIG=…

Up also starts the programs of --with, with KUBECONFIG set, and stops them at the end. Quote arguments with spaces as in
a shell; nothing is expanded: --with "'/my tools/receiver' --fail 2".

The first time on a machine it builds the servers, which takes about five minutes and needs Go. All data is in one
directory, so the next up continues with the same objects, credentials and, if it is free, port.

A definition of --crds whose conversion names a Service is applied with the URL https://127.0.0.1:9443 and the path of
the Service instead, where a program on this machine listens; package admission writes the URL of the program there.

By default there are no Kubernetes controllers and no nodes: nothing collects the dependents of a deleted owner, and no
pod runs. --controller-manager adds the controllers, --kubelet simulates a node that has room for every pod.

With a command, up runs only the control plane and that command, stops when the command ends, and exits with its
code, or with 130 if Ctrl-C ends the command. The command has KUBECONFIG and, for tests that use package clustertest,
` + clustertest.EnvVar + `:

	fairlead up --temporary -- go test ./...`,
		Example: `  fairlead up                                            # until Ctrl-C; data and credentials stay in .fairlead
  fairlead up --controllers 3                            # three controllers that share the operations
  fairlead up --with 'bin/receiver --fail 2'             # beside a program of yours
  fairlead up --temporary -- go test ./...               # a fresh control plane for one command
  fairlead up --controller-manager --kubelet             # with Deployments and Jobs whose pods become Ready
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
				o.programs = append(o.programs, words)
			}
			return up(cmd.Context(), s, o, args)
		},
	}
	flags := cmd.Flags()
	o.controller.Serve.NoAuth = true
	flags.DurationVar(&o.controller.Drain, "drain", defaultDrain,
		"`time` that calls in progress have to finish at the end, before the programs of --with are stopped")
	flags.StringArrayVar(&o.with, "with", nil,
		"`program` to run as well, with arguments split at spaces "+
			"except in '…' and \"…\" and after \\; may be repeated")
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
	flags.BoolVar(&o.controllerManager, "controller-manager", false,
		"run kube-controller-manager as well, for garbage collection, namespaces, Deployments, Jobs and other workloads; "+
			"the first time it is built, which takes about two minutes more")
	flags.BoolVar(&o.kubelet, "kubelet", false,
		"simulate a scheduler, a node and a volume provisioner: pods become Ready and claims Bound, but no container runs")
	flags.StringArrayVar(&o.apiServerFlags, "apiserver-flag", nil,
		"`flag` for kube-apiserver, such as --v=2; may be repeated")
	return cmd
}

func up(ctx context.Context, s cli.Streams, o options, command []string) error {
	if o.temporary {
		o.dir = ""
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: o.dir, CacheDir: o.cacheDir, APIServerFlags: o.apiServerFlags,
		ControllerManager: o.controllerManager, Kubelet: o.kubelet, Prepare: o.install, Progress: s.Err,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return interruptedBefore(command)
	case err != nil:
		return err
	}
	defer func() {
		c.Stop()
		cli.Say(s.Err, "control plane stopped")
	}()
	cli.Say(s.Err, "control plane ready at %s, logs and data in %s", c.Config().Host, c.Dir())
	if len(command) > 0 {
		return runCommand(ctx, s, c, command)
	}
	return runAll(ctx, s, c, o)
}

// install installs the definitions of --crds.
func (o *options) install(ctx context.Context, cfg *rest.Config) error {
	if len(o.crds) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := clustertest.ApplyCRDs(ctx, cfg, clustertest.CRDFiles(o.crds...)); err != nil {
		return fmt.Errorf("cannot install the definitions of --crds: %w", err)
	}
	return nil
}

// interruptedBefore returns the result of an interrupt before a command, if there is one, has begun.
func interruptedBefore(command []string) error {
	if len(command) > 0 {
		return &cli.ExitError{Code: cli.ExitInterrupted}
	}
	return nil
}
