package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
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
	shards string // [namespace/]name of the group; "": not shared
	slots  int
	member string                 // display name of this replica; "": host name and process
	given  func(flag string) bool // nil: the command has no such flags
}

func (o *sharingOptions) sharingFlags(f *pflag.FlagSet) {
	f.StringVar(&o.shards, "shards", "", "share the operations, by namespace, with all replicas of the group `namespace/name` "+
		"(default "+DefaultGroup+" in the system namespace); instead of --leader-elect")
	f.Lookup("shards").NoOptDefVal = DefaultGroup
	f.IntVar(&o.slots, "shard-slots", shard.DefaultSlots,
		"`number` of slots that namespaces are divided into, a power of two; a change takes effect when all replicas have it")
	o.given = f.Changed
}

// check validates the flags without the namespace. An empty name, as from an unset variable, is refused: it would let
// replicas work without coordination.
func (o *sharingOptions) check() error {
	switch {
	case o.given == nil:
	case o.given("shards") && o.shards == "":
		return cli.Usagef(`--shards "" is not namespace/name`)
	case o.given("shard-slots") && o.shards == "":
		return cli.Usagef("--shard-slots needs --shards")
	}
	return nil
}

// group parses the flags. While it has members, the group holds the Lease of --leader-elect, which is in the system
// namespace. Therefore the group must be there, too.
func (o *sharingOptions) group(system string) (name string, layout shard.Layout, err error) {
	namespace, name, ok := strings.Cut(o.shards, "/")
	if !ok {
		namespace, name = system, o.shards
	}
	switch {
	case len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Label(name)) > 0:
		return "", layout, cli.Usagef("--shards %q is not namespace/name", o.shards)
	case namespace != system:
		return "", layout, cli.Usagef("--shards %s: the group has to be in the system namespace, which is %s "+
			"(--system-namespace): the Lease %s is there", o.shards, system, leaseName)
	case name == leaseName:
		return "", layout, cli.Usagef("--shards %s: that is the Lease of --leader-elect", o.shards)
	}
	layout = shard.Layout{Slots: o.slots}
	if err := layout.Check(); err != nil || o.slots == 0 {
		return "", layout, cli.Usagef("--shard-slots %d: want a power of two of at most %d", o.slots, shard.MaxSlots)
	}
	return name, layout, nil
}

// sharing is this replica's membership in the group.
type sharing struct {
	group *group.Group
	slots *source.Sharding // of the store of operations
}

// newSharing returns a membership, which starts when it is run. address is where other replicas reach this one; empty:
// unreachable.
func newSharing(c *controller, address string) (*sharing, error) {
	name, layout, err := c.sharingOptions.group(c.systemNamespace)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	g, err := group.New(c.config, group.Options{
		Namespace: c.systemNamespace, Name: name, Role: groupRole, Layout: layout, Leader: leaseName, Logger: c.log,
		Events: true, Address: address, TracerProvider: c.spans.tracers(),
		Member: cmp.Or(c.member, fmt.Sprintf("%s-%d", host, os.Getpid())), Drain: max(c.Drain, time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	s := &sharing{group: g, slots: source.NewSharding(layout)}
	return s, s.slots.Set(layout.Set()) // no slots, explicitly: a replica that waits for slots is ready
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

// executeShared runs the operations of the slots that this replica gets, until ctx ends. Then it hands them over, after
// waiting for running calls at most for --drain.
func (c *controller) executeShared(ctx context.Context) error {
	all := context.WithoutCancel(ctx)
	if c.beforeCalls(ctx, all); ctx.Err() != nil {
		return nil
	}
	running, end := context.WithCancelCause(all)
	defer end(nil)
	taking, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	ended := make(chan error, 1)
	go func() {
		err := c.executor.Run(running)
		leave(err)
		ended <- err
	}()
	c.sharing.group.Add(c.sharing.slots)
	c.sharing.group.Add(c.executor)
	err := c.sharing.group.Run(taking)
	end(context.Cause(taking))
	over := <-ended
	switch {
	case errors.Is(err, group.ErrRole) || errors.Is(err, group.ErrNotGroup):
		return cli.Usagef("--shards: %v", err)
	case err != nil:
		return err
	case ctx.Err() == nil: // it ended on its own
		return over
	}
	c.log.InfoContext(ctx, "all operations stopped in this process", "cause", over)
	return nil
}
