package op

import (
	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// NewCommand returns the command fairlead op.
func NewCommand(s cli.Streams) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "op",
		Aliases: []string{"operation", "operations"},
		Short:   "Schedule, show, await and cancel operations",
		Long: `Op works with operations, each named by its resource: TYPE/ID, or TYPE ID where the type or id has a slash.

	fairlead op schedule Application/shop --type Delete --webhook cleanup
	fairlead op wait Application/shop

Linked as kubectl-fairlead somewhere in the PATH, fairlead is a plugin of kubectl:

	ln -s "$(command -v fairlead)" ~/.local/bin/kubectl-fairlead && kubectl fairlead op list`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return cli.Usagef("unknown command %q", args[0])
		},
	}
	f := cmd.PersistentFlags()
	o.Flags(f)
	f.StringVarP(&o.namespace, "namespace", "n", "", "`namespace` of the operations (default: that of the context)")
	f.StringVarP(&o.output, "output", "o", "", "`format`: table, json or yaml (default table)")
	cmd.AddCommand(newScheduleCommand(s, &o), newListCommand(s, &o), newGetCommand(s, &o),
		newDescribeCommand(s, &o), newWaitCommand(s, &o), newCancelCommand(s, &o), newRetryCommand(s, &o))
	return cmd
}

func newGetCommand(s cli.Streams, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "get TYPE/ID", Short: "Show an operation",
		Example: "  fairlead op get Application/shop -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withOperation(cmd.Context(), args, func(op *v1alpha1.Operation) error {
				return show(s.Out, o.output, operations.ViewOf(op))
			})
		},
	}
}

func newCancelCommand(s cli.Streams, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "cancel TYPE/ID", Short: "Request the cancellation of an operation",
		Long: "Cancel requests the cancellation: no new call starts, " +
			"the call in progress is cancelled, and compensation runs.",
		Example: "  fairlead op cancel Application/shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withResource(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
				op, err := scheduler.Cancel(cmd.Context(), r, "")
				if err != nil {
					return err
				}
				return show(s.Out, o.output, operations.ViewOf(op))
			})
		},
	}
}

func newRetryCommand(s cli.Streams, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "retry TYPE/ID", Short: "Schedule a failed operation again, with a new id",
		Example: "  fairlead op retry Application/shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withResource(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
				op, err := scheduler.Retry(cmd.Context(), r)
				if err != nil {
					return err
				}
				return show(s.Out, o.output, operations.ViewOf(op))
			})
		},
	}
}
