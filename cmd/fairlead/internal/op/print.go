package op

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/operations"
)

func show(w io.Writer, output string, v operations.View) error {
	if output == "json" || output == "yaml" {
		return cli.Encode(w, output, v)
	}
	return showTable(w, []listed{{View: v}})
}

// showTable has a column with namespaces if the first operation has a namespace.
func showTable(w io.Writer, views []listed) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	inAll := len(views) > 0 && views[0].Namespace != ""
	if inAll {
		_, _ = fmt.Fprint(tw, "NAMESPACE\t")
	}
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
		if inAll {
			_, _ = fmt.Fprintf(tw, "%s\t", v.Namespace)
		}
		_, _ = fmt.Fprintf(tw, "%s/%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\n", cli.Plain(v.ResourceType), cli.Plain(v.ResourceID),
			v.OperationType, cli.Dash(cli.Plain(v.OperationCategory)), v.Status, v.Progress.Completed, v.Progress.Total,
			age, cli.Dash(cli.Plain(reason)))
	}
	return tw.Flush()
}
