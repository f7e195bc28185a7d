package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/flow"
)

type flowsOptions struct {
	remote
	key, flow, status, output string
	longer, every             time.Duration
	watch                     bool
	limit                     int
}

// NewFlowsCommand returns the command fairlead flows.
func NewFlowsCommand(s cli.Streams) *cobra.Command {
	var o flowsOptions
	cmd := &cobra.Command{
		Use:   "flows",
		Short: "Show the live fibers of a program: the step, how long, and the steps before",
		Long: `Flows asks a program's /debug/flows for its live and parked fibers. fairlead controller serves it on its HTTP address;
in a program of your own, Runtime.Flows has it on the pages of WithListen, or serve flow.Engine.DebugHandler.`,
		Example: `  fairlead flows                          # of fairlead up or fairlead controller on this machine
  fairlead flows --watch --longer 5m      # those that have been at one place for over five minutes
  fairlead flows --key prod/orders -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "table" && o.output != "json" {
				return cli.Usagef("unknown output format %q: use table or json", o.output)
			}
			switch o.status {
			case "", "ready", "running", "parked":
			default:
				return cli.Usagef("unknown status %q: use ready, running or parked", o.status)
			}
			switch {
			case o.every <= 0:
				return cli.Usagef("--every must be a duration above zero, such as 2s")
			case o.longer < 0:
				return cli.Usagef("--longer must not be negative")
			case o.limit < 0:
				return cli.Usagef("--limit must not be negative; 0 is all")
			}
			return showFlows(cmd.Context(), s, o)
		},
	}
	f := cmd.Flags()
	o.flags(f, "http://127.0.0.1:8081/debug/flows", "the program's page",
		"list operations in all namespaces that it serves")
	f.StringVar(&o.key, "key", "", "only the fiber of this `key`, such as namespace/name")
	f.StringVar(&o.flow, "flow", "", "only fibers of this `flow`")
	f.StringVar(&o.status, "status", "", "`status`: only fibers that are ready, running or parked")
	f.DurationVar(&o.longer, "longer", 0, "only fibers that have been at one place for longer")
	f.IntVar(&o.limit, "limit", 1000, "at most `N` fibers; 0: all")
	f.BoolVarP(&o.watch, "watch", "w", false, "refresh the list until interrupted")
	f.DurationVar(&o.every, "every", 2*time.Second, "interval of the refresh with --watch")
	f.StringVarP(&o.output, "output", "o", "table", "`format`: table or json")
	return cmd
}

func showFlows(ctx context.Context, s cli.Streams, o flowsOptions) error {
	width, height, tty := cli.Terminal(s.Out)
	for {
		fibers, err := fetchFlows(ctx, o)
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err != nil && o.watch:
			return nil // an interrupt is the normal end
		case err != nil:
			return fmt.Errorf("cannot read flows: %w", context.Cause(ctx))
		}
		if o.watch && tty && o.output == "table" {
			_, _ = fmt.Fprint(s.Out, "\x1b[H\x1b[2J")
			fibers = fibers[:min(len(fibers), max(1, height-3))]
		}
		if err := printFlows(s.Out, o.output, fibers, width); err != nil {
			return err
		}
		if !o.watch {
			return nil
		}
		select {
		case <-time.After(o.every):
		case <-ctx.Done():
			return nil
		}
	}
}

// maxFlows bounds the bytes read. The page may have a million lines.
const maxFlows = 1 << 30

func fetchFlows(ctx context.Context, o flowsOptions) ([]flow.Info, error) {
	u, err := o.parse()
	if err != nil {
		return nil, err
	}
	q := u.Query()
	q.Set("format", "json")
	q.Set("limit", fmt.Sprint(o.limit))
	for name, value := range map[string]string{"key": o.key, "flow": o.flow, "status": o.status} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if o.longer > 0 {
		q.Set("longer", o.longer.String())
	}
	u.RawQuery = q.Encode()
	response, done, err := o.get(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("cannot read flows: %w (is the program running there?)", err)
	}
	defer done()
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("cannot read flows: %s answers %s: fairlead controller has them at --metrics-listen if that "+
			"is set; a program of your own needs fairlead.WithListen and Runtime.Flows", o.url, response.Status)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 512))
		return nil, fmt.Errorf("cannot read flows: %s answers %s: %s", o.url, response.Status,
			strings.TrimSpace(string(text)))
	}
	var fibers []flow.Info
	d := json.NewDecoder(io.LimitReader(response.Body, maxFlows))
	for {
		var i flow.Info
		if err := d.Decode(&i); err == io.EOF {
			return fibers, nil
		} else if err != nil {
			return nil, fmt.Errorf("cannot read flows: %s does not look like /debug/flows: %w", o.url, err)
		}
		fibers = append(fibers, i)
	}
}

func printFlows(w io.Writer, output string, fibers []flow.Info, width int) error {
	if output == "json" {
		return cli.Encode(w, "json", map[string]any{"items": fibers})
	}
	if len(fibers) == 0 {
		_, err := fmt.Fprintln(w, "no fibers")
		return err
	}
	var text strings.Builder
	tw := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(tw, "KEY\tSTEP\tSTATUS\tFOR\tNEXT CHECK\tTRY\tTRAIL") // a strings.Builder cannot fail
	slices.SortStableFunc(fibers, func(a, b flow.Info) int { return strings.Compare(a.Key, b.Key) })
	for _, f := range fibers {
		status, next := f.Status.String(), "-"
		if f.Why != "" {
			status += " (" + f.Why + ")"
		}
		if !f.Until.IsZero() {
			next = "in " + duration.HumanDuration(max(0, time.Until(f.Until)))
		}
		_, _ = fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d\t%v\n", cli.Dash(f.Key), f.Path, status,
			duration.HumanDuration(f.For),
			next, f.Attempt+1, f.Trail)
	}
	_ = tw.Flush()
	if width == 0 {
		_, err := io.WriteString(w, text.String())
		return err
	}
	for line := range strings.SplitSeq(strings.TrimRight(text.String(), "\n"), "\n") {
		if _, err := fmt.Fprintln(w, cli.Cut(line, width)); err != nil {
			return err
		}
	}
	return nil
}
