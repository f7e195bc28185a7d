package op

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func newListCommand(s cli.Streams, o *options) *cobra.Command {
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
			return o.withScheduler(func(scheduler *operations.Scheduler) error {
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
