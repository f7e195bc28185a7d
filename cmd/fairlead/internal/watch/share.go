package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// shareOptions configures a watch that shares the objects with other processes.
type shareOptions struct {
	group string
	by    string
	slots int
	given func(flag string) bool
}

func (o *shareOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.group, "shard-group", "",
		"`namespace/name` of a group whose members share the objects; each shows its part")
	f.StringVar(&o.by, "shard-by", shard.Namespace.String(), "`field` by which objects are shared: namespace or uid")
	f.IntVar(&o.slots, "shard-slots", shard.DefaultSlots, "`number` of slots that the objects are divided into, a power of two")
	o.given = f.Changed
}

// check validates the flags.
func (o *shareOptions) check() (shard.Layout, error) {
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
		return shard.Layout{}, cli.Usagef("--shard-slots %d: want a power of two of at most %d", o.slots, shard.MaxSlots)
	}
	return layout, nil
}

// share is the part of the objects that this process shows as a member of a group, or nil if it shows all. It
// implements group.Participant. Before it releases a slot, it shows that the objects have left, if the reader takes the
// output in time. One goroutine prints all output, so there is no work to count by slot (internal/handover).
type share struct {
	slots  *source.Sharding
	group  *group.Group
	member string
	print  func(member string, held shard.Set)
	asked  chan chan<- struct{} // receives channels, and closes each one when all pending events are shown
	over   chan struct{}        // closed after the last output

	mu      sync.Mutex // guards the rest; held during output
	held    shard.Set  // as last shown
	lost    shard.Set  // not handed over
	changed chan struct{}
	elsewhere
}

// newShare returns a member, or nil without a group. print is called with the held slots whenever they change. Calls
// are not concurrent.
func newShare(
	cfg *rest.Config, o shareOptions, layout shard.Layout, log *slog.Logger, print func(string, shard.Set),
) (*share, error) {
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
	s := &share{
		slots: source.NewSharding(layout), member: fmt.Sprintf("%s-%d", host, os.Getpid()), print: print,
		asked: make(chan chan<- struct{}), over: make(chan struct{}),
		held: layout.Set(), lost: layout.Set(), changed: make(chan struct{}),
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
	s.hold(ctx, slots, true)
	return s.slots.Gain(ctx, slots)
}

// Lose implements group.Participant.
func (s *share) Lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	if !s.hold(ctx, slots, false) {
		return
	}
	s.slots.Lose(ctx, slots, quiet)
	shown := make(chan struct{})
	select {
	case s.asked <- shown:
	case <-s.over:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-shown:
	case <-ctx.Done():
	}
}

// hold shows the held slots if slots are gained or lost. Slots lost after ctx has ended count as lost, not handed over.
func (s *share) hold(ctx context.Context, slots shard.Set, come bool) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held.Minus(slots)
	if come {
		held = s.held.Union(slots)
	}
	if held == s.held {
		return false
	}
	s.held = held
	if s.lost = s.lost.Minus(slots); !come && ctx.Err() != nil {
		s.lost = s.lost.Union(slots)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.print(s.member, held)
	return true
}

// follow shows the changes of a store until ctx ends or sated returns true.
func (s *share) follow(ctx context.Context, changes *store.Drainer, sated func() bool) error {
	if s == nil {
		return changes.Run(ctx)
	}
	defer close(s.over)
	defer changes.Close()
	show := func(shown chan<- struct{}) { // later events are not awaited
		for left := changes.Lag(); left > 0 && ctx.Err() == nil && changes.Step(); left-- {
			continue
		}
		close(shown)
	}
	for ctx.Err() == nil && !sated() {
		select {
		case shown := <-s.asked:
			show(shown)
			continue
		default:
		}
		if changes.Step() {
			continue
		}
		select {
		case <-changes.Woken():
		case <-ctx.Done():
		case shown := <-s.asked:
			show(shown)
		}
	}
	return context.Cause(ctx)
}

// show prints the events of a batch that belong to this process. It waits until the held slots are certain: a process
// that was paused too long first learns which slots it has lost.
func (s *share) show(ctx context.Context, batch []store.Event, print func([]store.Event) error) error {
	if s == nil {
		return print(batch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.held.Minus(s.group.Held()).IsEmpty() {
		changed := s.changed
		s.mu.Unlock()
		again := time.NewTimer(10 * time.Millisecond) // the lease may have been renewed meanwhile
		select {
		case <-changed:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		s.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return print(s.elsewhere.leave(s.held, s.lost, batch))
}

// sharding returns the sharding of the source, or nil.
func (s *share) sharding() *source.Sharding {
	if s == nil {
		return nil
	}
	return s.slots
}

// name returns the name of the sharding.
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
		return cli.Usagef("--shard-group: %v", err)
	}
	return err
}
