package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// streams are the input and output of a command. Its constructor gets nothing else of the process.
type streams struct {
	in  io.Reader
	out io.Writer // results, for scripts too
	err io.Writer // progress and errors, for people
}

// Exit codes of the program. A command that runs another program returns its exit code.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// run runs the program and returns the exit code. If it is not 0, run has written one line to stderr.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runAs(ctx, "fairlead", args, stdin, stdout, stderr)
}

// runAs is run with the name of the program.
func runAs(ctx context.Context, name string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := streams{in: stdin, out: stdout, err: stderr}
	root := newRootCommand(s)
	if strings.TrimSuffix(name, ".exe") == pluginName {
		asPlugin(root)
	}
	root.SetArgs(args)
	begun := false
	markBegin(root, &begun)

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	var usage *usageError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage), !begun:
		// Errors of cobra before a command begins are usage errors.
		_, _ = fmt.Fprintf(stderr, "%s: %s (see %[1]s --help)\n", cmd.CommandPath(), oneLine(err))
		return exitUsage
	default:
		_, _ = fmt.Fprintf(stderr, "%s: %v\n", cmd.CommandPath(), err)
		return exitFailure
	}
}

// newRootCommand returns the command tree. Each command has its own file with a constructor; add it here.
func newRootCommand(s streams) *cobra.Command {
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
		Version:       version(),
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
			return usageErrorf("unknown command %q%s", args[0], hint)
		},
		SuggestionsMinimumDistance: 2,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newUpCommand(s),
		newControllerCommand(s),
		newShardsCommand(s),
		newWatchCommand(s),
		newOpCommand(s),
		newFlowsCommand(s),
		newWhyCommand(s),
		newCRDsCommand(s),
		newNewCommand(s),
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

// usageError is a mistake of the user: exit code 2.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usageErrorf(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitError ends the program with an exit code, without a message.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.code) }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
