package op

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func newDescribeCommand(s cli.Streams, o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "describe TYPE/ID",
		Short: "Show an operation with its calls in chronological order, and earlier operations",
		Example: `  fairlead op describe Application/shop
  fairlead op describe Application/shop -o yaml   # the object itself, with spec and conditions`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withOperation(cmd.Context(), args, func(op *v1alpha1.Operation) error {
				if o.output == "json" || o.output == "yaml" {
					return cli.Encode(s.Out, o.output, op)
				}
				return describeOperation(s.Out, op)
			})
		},
	}
}

func describeOperation(w io.Writer, op *v1alpha1.Operation) error {
	v := operations.ViewOf(op)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(tw, "%s:\t%s\n", name, cli.Plain(value)) // Flush returns the error
		}
	}
	line("Resource", v.ResourceType+"/"+v.ResourceID)
	line("Operation", fmt.Sprintf("%s %s", v.OperationType, v.OperationID))
	line("Category", v.OperationCategory)
	line("Correlation", v.CorrelationID)
	line("Related", resources(op, false))
	line("Locks", resources(op, true))
	line("Object", op.Namespace+"/"+op.Name)
	line("Status", string(v.Status))
	line("Waiting", strings.TrimPrefix(v.Waiting, "waiting "))
	line("Last error", v.LastError)
	line("Reason", v.Reason)
	line("Error", v.Error)
	line("Scheduled", cli.Stamp(v.CreatedAt))
	line("Deadline", cli.Stamp(op.Deadline()))
	if v.FinishedAt != nil {
		line("Finished",
			cli.Stamp(*v.FinishedAt)+" ("+v.FinishedAt.Sub(v.CreatedAt).Round(time.Millisecond).String()+")")
	}
	if op.PickedUp() {
		calls(tw, "Webhooks", op.Status.Webhooks)
		calls(tw, "Compensation", op.Status.Compensations)
		if op.Status.Notification != nil {
			calls(tw, "Notification", []v1alpha1.WebhookCallStatus{*op.Status.Notification})
		}
	}
	if len(op.Status.History) > 0 {
		_, _ = fmt.Fprintln(tw, "Earlier operations:")
		for _, h := range op.Status.History {
			_, _ = fmt.Fprintf(tw, "  %s\t%s\t%s\t%s %s\n", cli.Stamp(h.FinishedAt.Time), h.OperationType,
				h.OperationID, h.Phase,
				h.Reason)
		}
	}
	return tw.Flush()
}

// resources lists the related resources of an operation that are locked, or those that are not.
func resources(op *v1alpha1.Operation, locked bool) string {
	var all []string
	for _, r := range op.Spec.RelatedResources {
		if r.Lock == locked {
			all = append(all, r.ResourceType+"/"+r.ResourceID)
		}
	}
	return strings.Join(all, ", ")
}

func calls(w io.Writer, title string, list []v1alpha1.WebhookCallStatus) {
	if len(list) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w, title+":")
	for _, c := range list {
		tries, answer := "1 try", "-"
		if c.RetriesCount > 0 {
			tries = fmt.Sprint(c.RetriesCount+1, " tries")
		}
		if c.LastStatusCode != 0 {
			answer = fmt.Sprint("HTTP ", c.LastStatusCode)
		}
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", c.WebhookID, c.State, tries, answer, cli.Plain(c.Message))
		for _, moment := range []struct {
			what string
			at   interface{ IsZero() bool }
			text func() string
		}{
			{"started", c.StartedAt, func() string { return cli.Stamp(c.StartedAt.Time) }},
			{"last poll", c.LastPollTimestamp, func() string {
				return cli.Stamp(c.LastPollTimestamp.Time) + " " + c.WebhookPollURL
			}},
			{"next", c.NextAttemptAt, func() string { return cli.Stamp(c.NextAttemptAt.Time) }},
			{"finished", c.FinishedAt, func() string { return cli.Stamp(c.FinishedAt.Time) }},
		} {
			if !moment.at.IsZero() {
				_, _ = fmt.Fprintf(w, "    %s\t%s\n", moment.what, moment.text())
			}
		}
	}
}
