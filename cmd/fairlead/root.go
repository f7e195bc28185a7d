package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/explain"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/op"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/simulate"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/up"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/watch"
)

// run runs the program and returns the exit code. If it is not 0, run has written one line to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runAs(ctx, "fairlead", args, stdin, stdout, stderr)
}

// runAs is run with the name of the program.
func runAs(ctx context.Context, name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := cli.Streams{In: stdin, Out: stdout, Err: stderr}
	root := newRootCommand(s)
	if strings.TrimSuffix(name, ".exe") == pluginName {
		asPlugin(root)
	}
	root.SetArgs(args)
	begun := false
	markBegin(root, &begun)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return cli.ExitOK
	}
	var exit *cli.ExitError
	var usage *cli.UsageError
	switch {
	case errors.As(err, &exit):
		return exit.Code
	case errors.As(err, &usage), !begun:
		// Errors of cobra before a command begins are usage errors.
		_, _ = fmt.Fprintf(stderr, "%s: %s (see %[1]s --help)\n", cmd.CommandPath(), cli.OneLine(err))
		return cli.ExitUsage
	default:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
		return cli.ExitFailure
	}
}

// newRootCommand returns the command tree. Each command has its own file with a constructor; add it here.
func newRootCommand(s cli.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "fairlead",
		Short: "The asynchronous runtime for Kubernetes operators",
		Long: `Fairlead runs operations on a Kubernetes cluster and shows their progress.

On your machine, with a local control plane, which the first run builds in about five minutes:

	fairlead up

On any cluster, chosen as with kubectl (KUBECONFIG, --kubeconfig, --context):

	fairlead crds | kubectl apply --server-side -f -
	fairlead controller --leader-elect
	fairlead op schedule Application/shop --type Delete --webhook cleanup --wait
	fairlead watch pods -A

Exit codes: 0 success, 1 failure, 2 wrong usage.`,
		Version:       cli.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			hint := ""
			if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
				hint = fmt.Sprintf(", did you mean %s?", strings.Join(similar, " or "))
			}
			return cli.Usagef("unknown command %q%s", args[0], hint)
		},
		SuggestionsMinimumDistance: 2,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		up.NewCommand(s),
		controller.NewCommand(s),
		explain.NewShardsCommand(s),
		watch.NewCommand(s),
		op.NewCommand(s),
		explain.NewFlowsCommand(s),
		explain.NewWhyCommand(s),
		newCRDsCommand(s),
		newNewCommand(s),
		simulate.NewCommand(s),
	)
	return root
}

// markBegin makes every command of the tree set *begun when its own code starts.
func markBegin(cmd *cobra.Command, begun *bool) {
	if inner := cmd.RunE; inner != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*begun = true
			return inner(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		markBegin(child, begun)
	}
}
