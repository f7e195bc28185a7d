package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

type shardsOptions struct {
	cli.Connection
	output string
}

// NewShardsCommand returns the command fairlead shards.
func NewShardsCommand(s cli.Streams) *cobra.Command {
	var o shardsOptions
	cmd := &cobra.Command{
		Use:   "shards NAMESPACE/NAME",
		Short: "Show which replica of a group holds which slots",
		Long: `Shards shows the members of a group, the slots of each and the number of objects in them, when it
joined and when it last renewed its Lease, and the slots that are moving. It tells whether the slots have
boundaries by the number of objects, and names a namespace that has half of all objects, and members that
are not ready for their slots. It does not join the group. During a roll-out of a release with more kinds,
it names the kinds that older members leave out in their slots. With -o json, each member has the program,
namespaces and kinds that it states, and the number of its objects as load. If the slots have no equal
ranges of the hash, boundaries has the hash at which each of them begins.

The group is the Lease NAMESPACE/NAME; those of its members carry the label ` + group.Label + `.`,
		Example: `  fairlead shards operators/gateways
  fairlead shards operators/gateways -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one group, such as operators/gateways")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return showShards(cmd.Context(), s, o, args[0]) },
	}
	f := cmd.Flags()
	o.ServerFlags(f)
	f.StringVarP(&o.output, "output", "o", "table", "`format`: table or json")
	return cmd
}

func showShards(ctx context.Context, s cli.Streams, o shardsOptions, name string) error {
	if o.output != "table" && o.output != "json" {
		return cli.Usagef("unknown output format %q: use table or json", o.output)
	}
	namespace, name, err := cli.GroupName(name)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	report, err := group.Read(ctx, config, namespace, name)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return json.NewEncoder(s.Out).Encode(report)
	}
	return printShards(s.Out, report, time.Now())
}

func printShards(w io.Writer, report *group.Report, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	ago := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return duration.HumanDuration(now.Sub(t)) + " ago"
	}
	layout := shard.Layout{Slots: report.Of}
	held := 0
	_, _ = fmt.Fprintln(tw, "MEMBER\tHOLDS\tSLOTS\tOBJECTS\tJOINED\tRENEWED") // Flush returns the error
	for _, m := range report.Members {
		held += len(m.Slots)
		slots, load := "-", "-"
		if layout.Check() == nil && len(m.Slots) > 0 {
			slots = layout.Set(m.Slots...).String()
		}
		if m.Load != nil {
			load = strconv.Itoa(*m.Load)
		}
		_, _ = fmt.Fprintln(tw, strings.Join([]string{
			m.Name, strconv.Itoa(len(m.Slots)) + " of " + strconv.Itoa(report.Of), slots, load, ago(m.Since),
			ago(m.Renewed),
		}, "\t"))
	}
	if free := report.Of - held; free > 0 {
		_, _ = fmt.Fprintf(tw, "no holder\t%d of %d\n", free, report.Of)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, m := range report.Members {
		if len(m.Uncovered) == 0 || len(m.Slots) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s is older than other members: %s in its %d slots have no worker\n", m.Name,
			strings.Join(m.Uncovered, ", "), len(m.Slots)); err != nil {
			return err
		}
	}
	if err := printBoundaries(w, report); err != nil {
		return err
	}
	for _, m := range report.Members {
		if len(m.Unready) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s is not ready for its slots %s: %s\n", m.Name, layout.Set(m.Unready...),
			m.Reason); err != nil {
			return err
		}
	}
	for _, move := range report.Moving {
		if report.Changing && move.To == "" {
			continue // it waits for its boundaries
		}
		from, to := move.From, move.To
		if from == "" {
			from = "no holder"
		}
		if to == "" {
			to = "no holder"
		}
		if _, err := fmt.Fprintf(w, "slot %d moves from %s to %s\n", move.Slot, from, to); err != nil {
			return err
		}
	}
	return nil
}

// printBoundaries prints how objects are divided into slots, unless the slots have equal ranges.
func printBoundaries(w io.Writer, report *group.Report) error {
	var lines []string
	switch {
	case report.Changing:
		lines = append(lines, "the boundaries of the slots are changing")
	case len(report.Boundaries) > 0:
		lines = append(lines, "the slots have similar numbers of objects")
	}
	if d := report.Dominant; d != nil {
		line := fmt.Sprintf("namespace %s has %d of %d objects, and is in one slot", d.Namespace, d.Objects, d.Of)
		isController := func(m group.MemberReport) bool { return m.Program == cli.ControllerProgram }
		if !slices.ContainsFunc(report.Members, isController) {
			line += ": to divide its objects, share by uid (watch --shard-by uid, or fairlead.ShardBy(shard.UID))"
		}
		lines = append(lines, line)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
