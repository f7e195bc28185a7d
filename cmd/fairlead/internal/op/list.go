package op

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// listed is an operation in a list. Its namespace is empty if all operations of the list are in one namespace.
type listed struct {
	Namespace string `json:"namespace,omitempty"`
	operations.View
}

func newListCommand(s cli.Streams, o *options) *cobra.Command {
	var q operations.Query
	var status, phase, kind, related string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		Short: "List operations",
		Example: `  fairlead op list --status failed
  fairlead op list -A --phase "In Progress"
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
			if q.AllNamespaces && o.namespace != "" {
				return cli.Usagef("-n and -A exclude each other")
			}
			return o.withScheduler(func(scheduler *operations.Scheduler) error {
				found := []listed{}
				for op, err := range scheduler.List(cmd.Context(), q) {
					if err != nil {
						return err
					}
					v := listed{View: operations.ViewOf(op)}
					if q.AllNamespaces {
						v.Namespace = op.Namespace
					}
					if want == "" || v.Status == want {
						found = append(found, v)
					}
				}
				if o.output == "json" || o.output == "yaml" {
					return cli.Encode(s.Out, o.output, map[string]any{"items": found})
				}
				switch {
				case len(found) == 0 && q.AllNamespaces:
					cli.Say(s.Err, "no operations")
					return nil
				case len(found) == 0:
					cli.Say(s.Err, "no operations in namespace %s", scheduler.Namespace())
					return nil
				}
				return showTable(s.Out, found)
			})
		},
	}
	cmd.Flags().BoolVarP(&q.AllNamespaces, "all-namespaces", "A", false, "list operations in all namespaces")
	cmd.Flags().StringVar(&status, "status", "", "`status`: only operations that are IN_PROGRESS, SUCCEEDED or FAILED")
	cmd.Flags().StringVar(&phase, "phase", "", "`phase`: only operations that are \"In Progress\", Success or Failed")
	cmd.Flags().StringVar(&kind, "type", "", "only operations of this `type`: Create, Update or Delete")
	cmd.Flags().StringVar(&q.Category, "category", "", "only operations of this `category`")
	cmd.Flags().StringVar(&q.CorrelationID, "correlation-id", "", "only operations with this correlation `id`")
	cmd.Flags().StringVar(&q.ResourceType, "resource-type", "", "only operations of resources of this `type`")
	cmd.Flags().StringVar(&related, "related", "", "only operations with this related resource, `TYPE/ID`")
	return cmd
}
