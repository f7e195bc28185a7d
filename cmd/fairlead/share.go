package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
	"github.com/fairlead-io/fairlead/source"
)

// shareOptions say whether a watch shares the objects with others.
type shareOptions struct {
	group string
	by    string
	slots int
	given func(flag string) bool
}

func (o *shareOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.group, "shard-group", "",
		"`namespace/name` of a group: those of its members that watch share the objects, each shows its own")
	f.StringVar(&o.by, "shard-by", shard.Namespace.String(), "`field` by which objects are shared: namespace or uid")
	f.IntVar(&o.slots, "shard-slots", shard.DefaultSlots, "`N` slots that the objects are divided into, a power of two")
	o.given = f.Changed
}

// check reads the flags.
func (o *shareOptions) check() (shard.Layout, error) {
	for _, flag := range []string{"shard-by", "shard-slots"} {
		if o.group == "" && o.given(flag) {
			return shard.Layout{}, usageErrorf("--%s needs --shard-group", flag)
		}
	}
	if o.group == "" {
		return shard.Layout{}, nil
	}
	if _, _, err := groupName(o.group); err != nil {
		return shard.Layout{}, usageErrorf("--shard-group %v", err)
	}
	by, err := shard.ParseBy(o.by)
	if err != nil {
		return shard.Layout{}, usageErrorf("--shard-by: %v", err)
	}
	layout := shard.Layout{By: by, Slots: o.slots}
	if err := layout.Check(); err != nil || o.slots == 0 {
		return shard.Layout{}, usageErrorf("--shard-slots %d: want a power of two of at most %d", o.slots, shard.MaxSlots)
	}
	return layout, nil
}

// groupName reads the name of a group.
func groupName(s string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "", "", fmt.Errorf("%q is not namespace/name", s)
	}
	return namespace, name, nil
}

// share is the part of the objects that this process shows, as a member of a group; nil: it shows all. It is a
// group.Participant.
type share struct {
	slots  *source.Sharding
	group  *group.Group
	member string
	print  func(member string, held shard.Set)

	mu   sync.Mutex
	held shard.Set
}

// newShare makes a member, or nil without a group. print is called with what it holds, whenever that changes, one call
// at a time.
func newShare(
	cfg *rest.Config, o shareOptions, layout shard.Layout, log *slog.Logger, print func(string, shard.Set),
) (*share, error) {
	if o.group == "" {
		return nil, nil
	}
	namespace, name, err := groupName(o.group)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s := &share{
		slots: source.NewSharding(layout), member: fmt.Sprintf("%s-%d", host, os.Getpid()), print: print,
		held: layout.Set(),
	}
	s.group, err = group.New(cfg, group.Options{
		Namespace: namespace, Name: name, Role: "watch", Layout: layout, Member: s.member, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	s.group.Add(s)
	return s, nil
}

// Gain implements group.Participant.
func (s *share) Gain(ctx context.Context, slots shard.Set) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = s.held.Union(slots)
	s.print(s.member, s.held)
	return s.slots.Gain(ctx, slots)
}

// Lose implements group.Participant.
func (s *share) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held.Both(slots).IsEmpty() {
		return
	}
	s.held = s.held.Minus(slots)
	s.print(s.member, s.held)
	s.slots.Lose(ctx, slots, quiet)
}

// sharding is that of the source; nil: it has none.
func (s *share) sharding() *source.Sharding {
	if s == nil {
		return nil
	}
	return s.slots
}

// name is that of the division of objects.
func (s *share) name() string {
	if s == nil {
		return ""
	}
	return s.slots.String()
}

// take takes part in the group until ctx ends.
func (s *share) take(ctx context.Context) error {
	if s == nil {
		return nil
	}
	err := s.group.Run(ctx)
	if errors.Is(err, group.ErrRole) || errors.Is(err, group.ErrNotGroup) {
		return usageErrorf("--shard-group: %v", err)
	}
	return err
}
