package watch

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/shard"
)

// options are the flags.
type options struct {
	cli.Connection
	namespaces    []string
	all           bool
	labels        string
	fields        string
	output        string
	resync        time.Duration
	stats         bool
	verbose       bool
	noWatchList   bool
	pageSize      int
	silence       time.Duration
	listProgress  time.Duration
	maxWatch      time.Duration
	backoffBase   time.Duration
	backoffCap    time.Duration
	bulkGuard     int
	bulkGuardFlag int
	groupOptions  groupOptions
	layout        shard.Layout
}

// NewCommand returns the command fairlead watch.
func NewCommand(s cli.Streams) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "watch RESOURCE[.VERSION.GROUP]",
		Short: "Show objects and all their changes, and recover from every kind of failure",
		Long: `Watch shows the objects of a resource and then every change, like kubectl get --watch, but never ends by
itself. It recovers from expired versions, broken and silent connections, restarts of the API server, and revoked
permissions that are granted again, and shows the changes that it missed meanwhile.

A name with version and group needs no discovery: deployments.v1.apps, or configmaps.v1. for the core group. Other names
are resolved by discovery: pods, deploy, operations.fairlead.io.

With --shard-group several processes share the objects: each shows the objects of its slots. A process that joins or
leaves takes over or hands over slots. An object whose slot moves to another process is reported as LEFT; it was not
deleted.

With -o json every line is an object with a type: ADDED, MODIFIED, DELETED, LEFT, SYNCED, SYNC, EPOCH, QUARANTINED,
SHARD, STATUS, STATS. Without -n and -A, the namespace of the context is watched. Ctrl-C ends it.`,
		Example: `  fairlead watch pods -A
  fairlead watch configmaps.v1. -n team-a -n team-b -l app=web -o json
  fairlead watch pods -A --shard-group default/pods -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("name one resource, such as pods or deployments.v1.apps")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return watch(cmd.Context(), s, o, args[0]) },
	}
	f := cmd.Flags()
	o.ServerFlags(f)
	f.StringArrayVarP(&o.namespaces, "namespace", "n", nil, "`namespace`; may be repeated")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "watch all namespaces")
	f.StringVarP(&o.labels, "selector", "l", "", "label `selector`")
	f.StringVar(&o.fields, "field-selector", "", "field `selector`")
	f.StringVarP(&o.output, "output", "o", "", "`format`: json, table, name or none (default table)")
	f.IntVar(&o.pageSize, "page-size", source.DefaultPageSize, "`objects` per page of a list")
	f.BoolVar(&o.noWatchList, "no-watch-list", false, "list in pages instead of streaming the initial objects")
	f.DurationVar(&o.silence, "silence-budget", source.DefaultSilenceBudget,
		"time without an event on a watch before the server is asked for its current version")
	f.DurationVar(&o.listProgress, "list-progress-timeout", source.DefaultListProgressTimeout,
		"time without progress before a list is started again")
	f.DurationVar(&o.maxWatch, "max-watch", source.DefaultMaxWatch, "lifetime of one watch request")
	f.DurationVar(&o.backoffBase, "backoff-base", source.DefaultBackoffBase,
		"maximum of the first wait after a failure")
	f.DurationVar(&o.backoffCap, "backoff-cap", source.DefaultBackoffCap, "maximum of every wait after a failure")
	f.IntVar(&o.bulkGuard, "bulk-delete-guard", source.DefaultBulkDeleteGuard,
		"more than this `number` of deletions in one list need confirmation by a second list; 0: off")
	f.DurationVar(&o.resync, "resync", 0, "period after which every object is shown again from memory (default: never)")
	o.groupOptions.flags(f)
	f.BoolVar(&o.stats, "stats", false, "show counts and times, when synced and at the end")
	f.BoolVar(&o.verbose, "verbose", false, "log every request and repair to stderr")
	return cmd
}

func (o *options) check(s cli.Streams) error {
	switch o.output {
	case "":
		o.output = "table"
	case "json", "table", "name", "none":
	default:
		return cli.Usagef("unknown output format %q: use json, table, name or none", o.output)
	}
	if o.all && len(o.namespaces) > 0 {
		return cli.Usagef("-n and -A exclude each other")
	}
	for _, namespace := range o.namespaces {
		if wrong := validation.IsDNS1123Label(namespace); len(wrong) > 0 {
			return cli.Usagef("-n %q is not the name of a namespace: %s", namespace, wrong[0])
		}
	}
	if _, err := labels.Parse(o.labels); err != nil {
		return cli.Usagef("cannot read label selector %q: %v", o.labels, err)
	}
	if _, err := fields.ParseSelector(o.fields); err != nil {
		return cli.Usagef("cannot read field selector %q: %v", o.fields, err)
	}
	for name, d := range map[string]time.Duration{
		"--silence-budget": o.silence, "--list-progress-timeout": o.listProgress, "--max-watch": o.maxWatch,
		"--backoff-base": o.backoffBase, "--backoff-cap": o.backoffCap,
	} {
		if d <= 0 {
			return cli.Usagef("%s must be a duration above zero, such as 30s", name)
		}
	}
	if o.resync < 0 || o.pageSize < 1 || o.bulkGuard < 0 {
		return cli.Usagef("--resync and --bulk-delete-guard must not be negative, and --page-size must be at least 1")
	}
	var err error
	if o.layout, err = o.groupOptions.check(); err != nil {
		return err
	}
	if o.bulkGuard == 0 {
		o.bulkGuardFlag = -1 // off, for the library
	} else {
		o.bulkGuardFlag = o.bulkGuard
	}
	return nil
}

// program identifies what is watched to a group: members that watch something else are refused.
func (o *options) program(r resource) string {
	program := "fairlead watch " + r.gvr.GroupResource().String()
	if o.labels != "" {
		program += " -l " + o.labels
	}
	if o.fields != "" {
		program += " --field-selector " + o.fields
	}
	return program
}

func watch(ctx context.Context, s cli.Streams, o options, name string) error {
	if err := o.check(s); err != nil {
		return err
	}
	config, namespace, err := o.Config()
	if err != nil {
		return err
	}
	resource, err := findResource(ctx, config, name)
	switch {
	case ctx.Err() != nil:
		return nil // an interrupt is the normal end
	case err != nil:
		return err
	}
	if len(o.namespaces) == 0 && !o.all && resource.namespaced {
		o.namespaces = []string{namespace}
	}
	if len(o.namespaces) > 0 && !resource.namespaced {
		return cli.Usagef("%s are cluster-scoped: omit -n", resource.gvr.Resource)
	}
	return follow(ctx, s, o, config, resource)
}
