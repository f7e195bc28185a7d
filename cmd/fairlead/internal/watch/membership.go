package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// groupOptions configures a watch that shares the objects with other processes.
type groupOptions struct {
	group string
	by    string
	slots int
	given func(flag string) bool
}

func (o *groupOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.group, "shard-group", "",
		"`namespace/name` of a group whose members share the objects; each shows its part")
	f.StringVar(&o.by, "shard-by", shard.Namespace.String(), "`field` by which objects are shared: namespace or uid")
	f.IntVar(&o.slots, "shard-slots", shard.DefaultSlots,
		"`number` of slots that the objects are divided into, a power of two")
	o.given = f.Changed
}

// check validates the flags.
func (o *groupOptions) check() (shard.Layout, error) {
	for _, flag := range []string{"shard-by", "shard-slots"} {
		if o.group == "" && o.given(flag) {
			return shard.Layout{}, cli.Usagef("--%s needs --shard-group", flag)
		}
	}
	if !o.given("shard-group") {
		return shard.Layout{}, nil
	}
	if _, _, err := cli.GroupName(o.group); err != nil {
		return shard.Layout{}, cli.Usagef("--shard-group %v", err)
	}
	by, err := shard.ParseBy(o.by)
	if err != nil {
		return shard.Layout{}, cli.Usagef("--shard-by: %v", err)
	}
	layout := shard.Layout{By: by, Slots: o.slots}
	if err := layout.Check(); err != nil || o.slots == 0 {
		return shard.Layout{}, cli.Usagef("--shard-slots %d: want a power of two of at most %d", o.slots,
			shard.MaxSlots)
	}
	return layout, nil
}

// membership lets this process show a part of the objects, as a member of a group. It is nil if this process shows all
// objects. It implements group.Participant. Before it releases a slot, it shows that the objects have left, if the
// reader takes the output in time. One goroutine prints all output, so there is no work to count by slot
// (internal/handover).
type membership struct {
	slots *source.Sharding
	group *group.Group
	held  *heldSlots
	feed  *feed
}

// newMembership returns a member, or nil without a group. A group refuses members of another program. print is called
// with the held slots whenever they change. Calls are not concurrent.
func newMembership(
	cfg *rest.Config, o groupOptions, layout shard.Layout, program string, log *slog.Logger,
	print func(string, shard.Set),
) (*membership, error) {
	if o.group == "" {
		return nil, nil
	}
	namespace, name, err := cli.GroupName(o.group)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	member := fmt.Sprintf("%s-%d", host, os.Getpid())
	m := &membership{
		slots: source.NewSharding(layout), feed: newFeed(),
		held: newHeldSlots(layout, func(held shard.Set) { print(member, held) }),
	}
	m.group, err = group.New(cfg, group.Options{
		Namespace: namespace, Name: name, Role: "watch", Program: program, Layout: layout, Member: member,
		Logger: log,
	})
	if err != nil {
		return nil, err
	}
	m.group.Add(m)
	return m, nil
}

// Gain implements group.Participant.
func (m *membership) Gain(ctx context.Context, slots shard.Set) error {
	m.held.gain(slots)
	return m.slots.Gain(ctx, slots)
}

// Lose implements group.Participant.
func (m *membership) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	if !m.held.lose(ctx, slots) {
		return
	}
	m.slots.Lose(ctx, slots, quiet)
	m.feed.flush(ctx)
}

// follow shows the changes of a store until ctx ends or stop returns true.
func (m *membership) follow(ctx context.Context, changes *store.Drainer, stop func() bool) error {
	if m == nil {
		return changes.Run(ctx)
	}
	return m.feed.run(ctx, changes, stop)
}

// show prints the events of a batch that belong to this process.
func (m *membership) show(ctx context.Context, batch []store.Event, print func([]store.Event) error) error {
	if m == nil {
		return print(batch)
	}
	return m.held.show(ctx, m.group.Held, batch, print)
}

// sharding returns the sharding of the source, or nil.
func (m *membership) sharding() *source.Sharding {
	if m == nil {
		return nil
	}
	return m.slots
}

// name returns the name of the sharding.
func (m *membership) name() string {
	if m == nil {
		return ""
	}
	return m.slots.String()
}

// cover states what this process shows, before it runs. objects holds them.
func (m *membership) cover(namespaces []string, kind string, objects *store.Store) {
	if m != nil {
		m.group.Cover(namespaces, []string{kind}, func() (map[string]int, shard.Set) { return store.CountSlots(objects) })
		m.group.Ready(m.slots.Unready)
	}
}

// run takes part in the group until ctx ends.
func (m *membership) run(ctx context.Context) error {
	if m == nil {
		return nil
	}
	err := m.group.Run(ctx)
	if errors.Is(err, group.ErrRole) || errors.Is(err, group.ErrNotGroup) || errors.Is(err, group.ErrProgram) {
		return cli.Usagef("--shard-group: %v", err)
	}
	return err
}
