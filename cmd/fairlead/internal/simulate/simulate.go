package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/internal/simulation/live"
	"github.com/fairlead-io/fairlead/internal/simulation/schedule"
)

// exitNotJudged is the exit code if the program could not be judged.
const exitNotJudged = 2

// options are the flags.
type options struct {
	crds, workload string
	given          string
	duration       time.Duration
	schedules      int
	seed           uint64
	faults, kinds  []string
	ignore         []string
	out            string
	replay         string
}

// NewCommand returns the command simulate.
func NewCommand(s cli.Streams) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "simulate --workload FILE [flags] -- COMMAND [ARGUMENT...]",
		Short: "Find the bugs of a controller that show only when something fails",
		Long: `Simulate runs a controller's program on a local control plane, plays a workload, and then plays it again
and again, each time with one fault at another moment: the program is killed before or after a write, an answer is
lost, a watch is late. A schedule that ends otherwise than without faults is a finding.

The program finds the API server by $KUBECONFIG, or by {kubeconfig} in an argument. If it ends before its first
request, it is run as in a Pod, with the variables and files of a service account; this needs Linux. It must not
need webhooks. Each schedule has a new kube-apiserver, etcd and kube-controller-manager, and takes about ten
seconds. The first one on a machine builds them, which takes about seven minutes.

The workload is a YAML list of steps. An object is RESOURCE/NAME or RESOURCE/NAMESPACE/NAME; conditions are those
of kubectl wait:

	- apply: web.yaml
	- wait: webpages/web
	  for: condition=Ready
	- patch: webpages/web
	  with: {spec: {replicas: 3}}
	- wait: webpages/web
	  for: jsonpath={.status.replicas}=3
	- delete: webpages/web
	- wait: webpages/web
	  for: delete

The time of --for begins when the first control plane has started. It covers the runs without faults, the search, and
the runs that confirm and shrink what it finds. No schedule begins later. A schedule in progress, and the
confirmation of what it shows, may take three minutes more. The report names a suspicion that could not be confirmed
by then, and a finding that could not be shrunk. Ctrl-C shows the report so far.

Exit codes: 0 no finding, 1 a finding, 2 the program could not be judged, or a suspicion could not be confirmed.

A Go test does the same a thousand times faster: see package simulate.`,
		Example: `  fairlead simulate --crds config/crd/bases --workload workload.yaml -- bin/manager --metrics-bind-address=0
  fairlead simulate --replay findings/1.json --crds config/crd/bases --workload workload.yaml -- bin/manager`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd, s, o, args) },
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.workload, "workload", "", "`file` with the steps of the workload (required)")
	f.StringVar(&o.crds, "crds", "",
		"`file or directory` with the CustomResourceDefinitions of the program; default: the program creates them, if any")
	f.StringVar(&o.given, "given", "",
		"`file or directory` with objects that exist before the program starts, such as its settings")
	f.DurationVar(&o.duration, "for", 5*time.Minute, "`time` of all runs")
	f.IntVar(&o.schedules, "schedules", 0, "largest `number` of schedules with faults (default: no bound)")
	f.Uint64Var(&o.seed, "seed", 1, "`seed` of all that is random; 0 takes a random one")
	f.StringSliceVar(&o.faults, "faults", nil,
		"`classes` of faults: crash, late, lost, error, expired, pause, depose, stale (default: all but stale)")
	f.StringSliceVar(&o.kinds, "kinds", nil, "`resources` at whose changes faults happen, such as pods (default: all)")
	f.StringSliceVar(&o.ignore, "ignore", nil, "`fields` that may differ at the end, such as status.message")
	f.StringVar(&o.out, "out", "", "`directory` for the report and for each finding's plan and page (default: none)")
	f.StringVar(&o.replay, "replay", "", "play only this `plan`: a file of --out, or the JSON that a report shows")
	return cmd
}

func run(cmd *cobra.Command, s cli.Streams, o *options, command []string) error {
	switch {
	case len(command) == 0:
		return cli.Usagef("the command of the controller is missing: -- COMMAND [ARGUMENT...]")
	case o.workload == "":
		return cli.Usagef("--workload is missing")
	}
	subject, search, plan, err := o.read(command)
	if err != nil {
		return cli.Usagef("%v", err)
	}
	subject.Progress = s.Err
	search.Progress = func(line string) { _, _ = fmt.Fprintln(s.Err, line) }
	report, err := live.Play(cmd.Context(), subject, search, plan)
	names := engine.Names{Replay: func(plan string) string { return o.again(plan, command) }}
	if err == nil {
		_, err = fmt.Fprintln(s.Out, engine.Text(report, names))
	}
	if err == nil && o.out != "" {
		err = engine.Write(o.out, report, names)
	}
	if err == nil {
		if len(report.Findings) > 0 {
			return &cli.ExitError{Code: cli.ExitFailure}
		}
		if err = report.Unjudged(); err == nil {
			return nil
		}
	}
	_, _ = fmt.Fprintf(s.Err, "%s: %v\n", cmd.CommandPath(), err)
	return &cli.ExitError{Code: exitNotJudged}
}

// read returns what the flags describe.
func (o *options) read(command []string) (subject live.Options, search engine.Options, plan *engine.Plan, err error) {
	if subject.Steps, err = readWorkload(o.workload); err != nil {
		return subject, search, nil, err
	}
	path, err := live.LookPath(command[0])
	if err != nil {
		return subject, search, nil, err
	}
	subject.Command = append([]string{path}, command[1:]...)
	if o.crds != "" {
		if subject.CRDs, err = schedule.ReadDefinitions(o.crds); err != nil {
			return subject, search, nil, fmt.Errorf("cannot read the CustomResourceDefinitions: %w", err)
		}
	}
	if o.given != "" {
		if subject.Given, err = schedule.ReadGiven(o.given); err != nil {
			return subject, search, nil, fmt.Errorf("cannot read the objects of --given: %w", err)
		}
	}
	if o.out != "" { // now, instead of at the end
		if err = os.MkdirAll(o.out, 0o777); err != nil {
			return subject, search, nil, fmt.Errorf("cannot create the directory of the findings: %w", err)
		}
	}
	if o.duration <= 0 || o.schedules < 0 {
		return subject, search, nil, errors.New("--for must be positive, and --schedules not negative")
	}
	search = engine.Options{
		Seed: o.seed, Schedules: o.schedules, Until: o.duration, Kinds: o.kinds, Ignore: o.ignore,
		Steps: len(subject.Steps), EarlyEnd: schedule.BeforeDeletion(subject.Steps),
	}
	if o.seed == 0 {
		search.Seed = rand.Uint64()
	}
	if search.Faults, err = engine.ParseClasses(o.faults); err != nil {
		return subject, search, nil, err
	}
	plan, err = readPlan(o.replay)
	return subject, search, plan, err
}

// readPlan reads a plan from a file, or from text that begins with a brace.
func readPlan(text string) (*engine.Plan, error) {
	if text == "" {
		return nil, nil
	}
	if !strings.HasPrefix(text, "{") {
		content, err := os.ReadFile(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read the plan to replay: %w", err)
		}
		text = string(content)
	}
	plan, err := engine.ParsePlan(text)
	return &plan, err
}

// again returns the command line that replays a plan.
func (o *options) again(plan string, command []string) string {
	args := []string{"fairlead", "simulate", "--replay", plan, "--workload", o.workload}
	if o.crds != "" {
		args = append(args, "--crds", o.crds)
	}
	if o.given != "" {
		args = append(args, "--given", o.given)
	}
	for _, field := range o.ignore {
		args = append(args, "--ignore", field)
	}
	args = append(args, "--")
	args = slices.Concat(args, command)
	for i, arg := range args {
		args[i] = cli.ShellQuote(arg)
	}
	return strings.Join(args, " ")
}
