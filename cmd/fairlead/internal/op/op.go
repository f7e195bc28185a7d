package op

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// opOptions holds the flags of all operation commands.
type opOptions struct {
	cli.Connection
	namespace string
	output    string
}

func (o *opOptions) scheduler() (*operations.Scheduler, error) {
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

// scheduled calls do with a scheduler, and adds advice to its error.
func (o *opOptions) scheduled(do func(*operations.Scheduler) error) error {
	scheduler, err := o.scheduler()
	if err != nil {
		return err
	}
	defer scheduler.Close()
	return friendly(do(scheduler), scheduler)
}

// scheduledFor is scheduled with the resource in the arguments.
func (o *opOptions) scheduledFor(args []string, do func(*operations.Scheduler, operations.Resource) error) error {
	r, err := cli.OperationResource(args)
	if err != nil {
		return err
	}
	return o.scheduled(func(scheduler *operations.Scheduler) error { return do(scheduler, r) })
}

func NewCommand(s cli.Streams) *cobra.Command {
	var o opOptions
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
	cmd.AddCommand(newOpScheduleCommand(s, &o), newOpListCommand(s, &o), newOpGetCommand(s, &o),
		newOpDescribeCommand(s, &o), newOpWaitCommand(s, &o), newOpCancelCommand(s, &o), newOpRetryCommand(s, &o))
	return cmd
}

// friendly adds advice to common errors.
func friendly(err error, s *operations.Scheduler) error {
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "could not find the requested resource"),
		strings.Contains(err.Error(), "404 page not found"),
		strings.Contains(err.Error(), "does not serve this resource"):
		return fmt.Errorf("the cluster has no Operations yet: fairlead crds | kubectl apply --server-side -f - (%w)", err)
	case errors.Is(err, operations.ErrNotFound):
		return fmt.Errorf("%w in namespace %s", err, s.Namespace())
	default:
		return err
	}
}

type scheduleOptions struct {
	operations.Request
	kind, object   string
	headers        map[string]string
	related, lock  []string
	ttl            time.Duration
	parallel, wait bool
}

func newOpScheduleCommand(s cli.Streams, o *opOptions) *cobra.Command {
	var so scheduleOptions
	cmd := &cobra.Command{
		Use:   "schedule TYPE/ID --type Create|Update|Delete [flags]",
		Short: "Schedule an operation",
		Long: `Schedule creates an operation. The controller calls the webhooks, which are objects of kind Webhook in the namespace, in the
given order. A resource has at most one unfinished operation. Without a webhook the operation succeeds at once. If a
webhook does not exist, the operation waits for it until the timeout.`,
		Example: `  fairlead op schedule Application/shop --type Delete --category unregisterApplication --webhook cleanup --wait
  fairlead op schedule Application/shop --type Create --webhook a --webhook b --parallel --object '{"name":"shop"}'`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if so.Resource, err = cli.OperationResource(args); err != nil {
				return err
			}
			if err := so.complete(cmd); err != nil {
				return err
			}
			return o.scheduled(func(scheduler *operations.Scheduler) error {
				op, err := scheduler.Schedule(cmd.Context(), so.Request)
				if err != nil {
					return err
				}
				if so.wait {
					return awaitOperation(cmd.Context(), s, o,
						func(ctx context.Context, progress func(operations.View)) (operations.View, error) {
							return scheduler.WaitFor(ctx, op, progress)
						})
				}
				return show(s.Out, o.output, operations.ViewOf(op))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&so.kind, "type", "",
		"`kind` of operation on the resource: Create, Update or Delete (required)")
	f.StringVar(&so.ID, "id", "", "`id` of this operation; a repeated request with the same id starts nothing twice (default: a new id)")
	f.StringVar(&so.Category, "category", "", "`name` that groups operations of one kind")
	f.StringVar(&so.CorrelationID, "correlation-id", "", "correlation `id` that is sent with every call")
	f.StringArrayVar(&so.Webhooks, "webhook", nil, "`name` of a Webhook to call; may be repeated, in order")
	f.StringArrayVar(&so.Compensate, "compensate", nil, "`name` of a Webhook to call after a failure; may be repeated")
	f.StringVar(&so.Notify, "notify", "", "`name` of a Webhook to call with the outcome")
	f.StringArrayVar(&so.related, "related", nil, "`TYPE/ID` of a related resource; may be repeated")
	f.StringArrayVar(&so.lock, "lock", nil,
		"`TYPE/ID` of a related resource that is locked for other operations until the end; may be repeated")
	f.BoolVar(&so.parallel, "parallel", false, "call the webhooks in parallel")
	f.StringVar(&so.object, "object", "", "`JSON`, or @file, available to templates as .Resource")
	f.StringVar(&so.TenantID, "tenant", "", "`tenant` on whose behalf it runs")
	f.StringToStringVar(&so.headers, "header", nil, "`name=value` available to templates under .Headers; may be repeated")
	f.DurationVar(&so.Timeout, "timeout", v1alpha1.DefaultTimeout, "timeout of the whole operation")
	f.DurationVar(&so.ttl, "ttl", 0, "delete the Operation this long after its end (default: keep it)")
	f.BoolVar(&so.wait, "wait", false, "wait for the end and show progress")
	return cmd
}

func (so *scheduleOptions) complete(cmd *cobra.Command) error {
	so.Type = v1alpha1.OperationType(so.kind)
	so.Headers = so.headers
	if so.parallel {
		so.Execution = operations.Parallel
	}
	if cmd.Flags().Changed("timeout") && so.Timeout == 0 {
		return cli.Usagef("--timeout must be a duration above zero, such as 30s or 2h")
	}
	if cmd.Flags().Changed("ttl") {
		so.TTLAfterFinished = &so.ttl
	}
	for _, flag := range []struct {
		name  string
		texts []string
		to    *[]operations.Resource
	}{{"related", so.related, &so.Related}, {"lock", so.lock, &so.Lock}} {
		for _, text := range flag.texts {
			r, err := cli.OperationResource([]string{text})
			if err != nil {
				return cli.Usagef("--%s %q is not of the form TYPE/ID", flag.name, text)
			}
			*flag.to = append(*flag.to, r)
		}
	}
	if so.object != "" {
		raw := []byte(so.object)
		if file, ok := strings.CutPrefix(so.object, "@"); ok {
			var err error
			if raw, err = os.ReadFile(file); err != nil {
				return cli.Usagef("cannot read --object: %v", err)
			}
		}
		if !json.Valid(raw) {
			return cli.Usagef("--object is not JSON")
		}
		so.Object = json.RawMessage(raw)
	}
	var invalid *operations.InvalidError
	if _, err := so.Spec(); errors.As(err, &invalid) {
		var all []string
		for _, f := range invalid.Fields {
			all = append(all, strings.TrimPrefix(f.Field, "spec.")+" "+f.Problem)
		}
		return cli.Usagef("%s", strings.Join(all, "; "))
	}
	return nil
}

func newOpListCommand(s cli.Streams, o *opOptions) *cobra.Command {
	var q operations.Query
	var status, phase, kind, related string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List operations",
		Example: `  fairlead op list --status failed
  fairlead op list --type Delete --category unregisterApplication
  fairlead op list --resource-type Application -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want := operations.Status(strings.ToUpper(status))
			switch want {
			case "", operations.InProgress, operations.Succeeded, operations.Failed:
			default:
				return cli.Usagef("unknown status %q: use IN_PROGRESS, SUCCEEDED or FAILED", status)
			}
			if phase != "" {
				var known bool
				if q.Phase, known = operations.ParsePhase(phase); !known {
					return cli.Usagef("unknown phase %q: use \"In Progress\", Success or Failed", phase)
				}
			}
			switch q.Type = v1alpha1.OperationType(kind); q.Type {
			case "", operations.Create, operations.Update, operations.Delete:
			default:
				return cli.Usagef("unknown type %q: use Create, Update or Delete", kind)
			}
			if related != "" {
				var err error
				if q.Related, err = cli.OperationResource([]string{related}); err != nil {
					return cli.Usagef("--related %q is not of the form TYPE/ID", related)
				}
			}
			return o.scheduled(func(scheduler *operations.Scheduler) error {
				views := []operations.View{}
				for op, err := range scheduler.List(cmd.Context(), q) {
					if err != nil {
						return err
					}
					if v := operations.ViewOf(op); want == "" || v.Status == want {
						views = append(views, v)
					}
				}
				if o.output == "json" || o.output == "yaml" {
					return cli.Encode(s.Out, o.output, map[string]any{"items": views})
				}
				if len(views) == 0 {
					cli.Say(s.Err, "no operations in namespace %s", scheduler.Namespace())
					return nil
				}
				return showTable(s.Out, views)
			})
		},
	}
	cmd.Flags().StringVar(&status, "status", "", "`status`: only operations that are IN_PROGRESS, SUCCEEDED or FAILED")
	cmd.Flags().StringVar(&phase, "phase", "", "`phase`: only operations that are \"In Progress\", Success or Failed")
	cmd.Flags().StringVar(&kind, "type", "", "only operations of this `type`: Create, Update or Delete")
	cmd.Flags().StringVar(&q.Category, "category", "", "only operations of this `category`")
	cmd.Flags().StringVar(&q.CorrelationID, "correlation-id", "", "only operations with this correlation `id`")
	cmd.Flags().StringVar(&q.ResourceType, "resource-type", "", "only operations of resources of this `type`")
	cmd.Flags().StringVar(&related, "related", "", "only operations with this related resource, `TYPE/ID`")
	return cmd
}

func newOpGetCommand(s cli.Streams, o *opOptions) *cobra.Command {
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

func newOpCancelCommand(s cli.Streams, o *opOptions) *cobra.Command {
	return &cobra.Command{
		Use: "cancel TYPE/ID", Short: "Request the cancellation of an operation",
		Long:    "Cancel requests the cancellation: no new call starts, the call in progress is cancelled, and compensation runs.",
		Example: "  fairlead op cancel Application/shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.scheduledFor(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
				op, err := scheduler.Cancel(cmd.Context(), r, "")
				if err != nil {
					return err
				}
				return show(s.Out, o.output, operations.ViewOf(op))
			})
		},
	}
}

func newOpRetryCommand(s cli.Streams, o *opOptions) *cobra.Command {
	return &cobra.Command{
		Use: "retry TYPE/ID", Short: "Schedule a failed operation again, with a new id",
		Example: "  fairlead op retry Application/shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.scheduledFor(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
				op, err := scheduler.Retry(cmd.Context(), r)
				if err != nil {
					return err
				}
				return show(s.Out, o.output, operations.ViewOf(op))
			})
		},
	}
}

func withOperation(ctx context.Context, o *opOptions, args []string, do func(*v1alpha1.Operation) error) error {
	return o.scheduledFor(args, func(scheduler *operations.Scheduler, r operations.Resource) error {
		op, err := scheduler.Get(ctx, r)
		if err != nil {
			return err
		}
		return do(op)
	})
}

func show(w io.Writer, output string, v operations.View) error {
	if output == "json" || output == "yaml" {
		return cli.Encode(w, output, v)
	}
	return showTable(w, []operations.View{v})
}

func showTable(w io.Writer, views []operations.View) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "RESOURCE\tTYPE\tCATEGORY\tSTATUS\tDONE\tAGE\tREASON") // Flush returns the error
	for _, v := range views {
		reason := v.Reason
		if v.Error != "" && v.Error != v.Reason {
			reason += ": " + v.Error
		}
		reason = cmp.Or(reason, v.Waiting, v.LastError)
		age := "-"
		if !v.CreatedAt.IsZero() {
			age = duration.HumanDuration(time.Since(v.CreatedAt))
		}
		_, _ = fmt.Fprintf(tw, "%s/%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\n", cli.Plain(v.ResourceType), cli.Plain(v.ResourceID),
			v.OperationType,
			cli.Dash(cli.Plain(v.OperationCategory)), v.Status, v.Progress.Completed, v.Progress.Total, age, cli.Dash(cli.Plain(reason)))
	}
	return tw.Flush()
}
