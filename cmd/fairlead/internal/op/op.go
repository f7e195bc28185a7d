package op

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// options holds the flags of all operation commands.
type options struct {
	cli.Connection
	namespace string
	output    string
}

func (o *options) scheduler() (*operations.Scheduler, error) {
	switch o.output {
	case "", "table", "json", "yaml":
	default:
		return nil, cli.Usagef("unknown output format %q: use json, yaml or table", o.output)
	}
	config, namespace, err := o.Config()
	if err != nil {
		return nil, err
	}
	if o.namespace != "" {
		namespace = o.namespace
	}
	return operations.NewScheduler(operations.Options{Config: config, Namespace: namespace})
}

// withScheduler calls do with a scheduler, and adds advice to its error.
func (o *options) withScheduler(do func(*operations.Scheduler) error) error {
	scheduler, err := o.scheduler()
	if err != nil {
		return err
	}
	defer scheduler.Close()
	return withAdvice(do(scheduler), scheduler)
}

// withResource is withScheduler with the resource in the arguments.
func (o *options) withResource(args []string, do func(*operations.Scheduler, operations.Resource) error) error {
	r, err := cli.OperationResource(args)
	if err != nil {
		return err
	}
	return o.withScheduler(func(scheduler *operations.Scheduler) error { return do(scheduler, r) })
}

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

// withAdvice adds advice to common errors.
func withAdvice(err error, s *operations.Scheduler) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "could not find the requested resource"),
		strings.Contains(err.Error(), "404 page not found"),
		strings.Contains(err.Error(), "does not serve this resource"):
		return fmt.Errorf("the cluster has no Operations yet: fairlead crds | kubectl apply --server-side -f - (%w)",
			err)
	case errors.Is(err, operations.ErrNotFound):
		return fmt.Errorf("%w in namespace %s", err, s.Namespace())
	default:
		return err
	}
}

func newGetCommand(s cli.Streams, o *options) *cobra.Command {
	return &cobra.Command{
		Use: "get TYPE/ID", Short: "Show an operation",
		Example: "  fairlead op get Application/shop -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withOperation(cmd.Context(), o, args, func(op *v1alpha1.Operation) error {
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

func withOperation(ctx context.Context, o *options, args []string, do func(*v1alpha1.Operation) error) error {
	return o.withResource(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
		op, err := scheduler.Get(ctx, r)
		if err != nil {
			return err
		}
		return do(op)
	})
}
