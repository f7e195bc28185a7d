package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

const (
	// DefaultGroup is the group of the operations controller, in the system namespace.
	DefaultGroup = "fairlead-controller-shards"
	// groupRole is the role of its members.
	groupRole = "operations"
)

// sharingOptions configures whether replicas of the controller share the operations.
type sharingOptions struct {
	group string // [namespace/]name; empty: not shared
	slots int
	given func(flag string) bool // nil: the command has no such flags
}

func (o *sharingOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.group, "shards", "",
		"share the operations, by namespace, with all replicas of the group `namespace/name` "+
			"(default "+DefaultGroup+" in the system namespace); instead of --leader-elect")
	f.Lookup("shards").NoOptDefVal = DefaultGroup
	f.IntVar(&o.slots, "shard-slots", shard.DefaultSlots,
		"`number` of slots that namespaces are divided into, a power of two; "+
			"a change takes effect when all replicas have it")
	o.given = f.Changed
}

// check validates the flags without the namespace. An empty name, as from an unset variable, is refused: it would let
// replicas work without coordination.
func (o *sharingOptions) check() error {
	switch {
	case o.given == nil:
	case o.given("shards") && o.group == "":
		return cli.Usagef(`--shards "" is not namespace/name`)
	case o.given("shard-slots") && o.group == "":
		return cli.Usagef("--shard-slots needs --shards")
	}
	return nil
}

// parse returns the name of the group and its slots. While it has members, the group holds the Lease of --leader-elect,
// which is in the system namespace. Therefore the group must be there, too.
func (o *sharingOptions) parse(system string) (name string, layout shard.Layout, err error) {
	namespace, name, ok := strings.Cut(o.group, "/")
	if !ok {
		namespace, name = system, o.group
	}
	switch {
	case len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Label(name)) > 0:
		return "", layout, cli.Usagef("--shards %q is not namespace/name", o.group)
	case namespace != system:
		return "", layout, cli.Usagef("--shards %s: the group has to be in the system namespace, which is %s "+
			"(--system-namespace): the Lease %s is there", o.group, system, leaseName)
	case name == leaseName:
		return "", layout, cli.Usagef("--shards %s: that is the Lease of --leader-elect", o.group)
	}
	layout = shard.Layout{Slots: o.slots}
	if err := layout.Check(); err != nil || o.slots == 0 {
		return "", layout, cli.Usagef("--shard-slots %d: want a power of two of at most %d", o.slots, shard.MaxSlots)
	}
	return name, layout, nil
}

// sharing is this replica's membership in the group; nil if the operations are not shared.
type sharing struct {
	group *group.Group
	slots *source.Sharding // of the store of operations
}

// newSharing returns a membership, which starts when it is run. It completes the options from the flags.
func newSharing(config *rest.Config, flags sharingOptions, o group.Options) (*sharing, error) {
	name, layout, err := flags.parse(o.Namespace)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	o.Name, o.Role, o.Layout, o.Events = name, groupRole, layout, true
	o.Member, o.Program = fmt.Sprintf("%s-%d", host, os.Getpid()), cli.ControllerProgram
	g, err := group.New(config, o)
	if err != nil {
		return nil, err
	}
	s := &sharing{group: g, slots: source.NewSharding(layout)}
	return s, s.slots.Set(layout.Set()) // no slots, explicitly: a replica that waits for slots is ready
}

// cover states what this replica works on, before it runs. operations holds the operations.
func (s *sharing) cover(namespaces []string, operations *store.Store) {
	if s != nil {
		kind := v1alpha1.GroupVersion.WithKind(v1alpha1.KindOperation)
		s.group.Cover(namespaces, []string{kind.GroupKind().String()}, func() (map[string]int, shard.Set) {
			return store.CountSlots(operations)
		})
		s.group.Ready(s.slots.Unready)
	}
}

// source returns the option for the store of operations, or nil if it holds all.
func (s *sharing) source() cache.Option {
	if s == nil {
		return nil
	}
	return source.ShardWith(s.slots)
}

// ready makes the readiness page fail if this replica lacks the rights to take part in the group, so that a rollout
// stops.
func (s *sharing) ready(pages http.Handler) http.Handler {
	if s == nil {
		return pages
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.group.Status().Err; errors.Is(err, group.ErrForbidden) {
			http.Error(w, "cannot share the operations: "+cli.OneLine(err), http.StatusServiceUnavailable)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// report returns the function that reads the state of the group, or nil if nothing is shared.
func (s *sharing) report() func(context.Context) (*group.Report, error) {
	if s == nil {
		return nil
	}
	return s.group.Report
}

// sharedWorker runs the operations of the slots that it gains. An executor implements it.
type sharedWorker interface {
	group.Participant
	Run(ctx context.Context) error
}

// run runs the operations of the slots that this replica gets, until ctx ends. Then it hands them over, after waiting
// for running calls at most for the drain time of the group.
func (s *sharing) run(ctx context.Context, w sharedWorker, log *slog.Logger) error {
	running, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	membership, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	ended := make(chan error, 1)
	go func() {
		err := w.Run(running)
		leave(err)
		ended <- err
	}()
	s.group.Add(s.slots)
	s.group.Add(w)
	err := s.group.Run(membership)
	end(context.Cause(membership))
	workErr := <-ended
	switch {
	case errors.Is(err, group.ErrRole) || errors.Is(err, group.ErrNotGroup) || errors.Is(err, group.ErrProgram):
		return cli.Usagef("--shards: %v", err)
	case err != nil:
		return err
	case ctx.Err() == nil: // the worker ended on its own
		return workErr
	}
	log.InfoContext(ctx, "all operations stopped in this process", "cause", workErr)
	return nil
}
