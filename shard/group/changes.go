package group

import (
	"context"
	"log/slog"

	"github.com/fairlead-io/fairlead/shard"
)

// Kind is the kind of a change.
type Kind string

// The kinds of changes.
const (
	Joined   Kind = "joined"      // this member is in the record
	Gained   Kind = "gained"      // it holds Slots, and its participants gain them
	Moving   Kind = "moving"      // its participants lose Slots
	Released Kind = "released"    // Slots were released
	Lost     Kind = "lost"        // it holds no slots any more because of Err, and joins again
	NotReady Kind = "notReady"    // it holds Slots, but has not been ready for them for a minute because of Err
	Died     Kind = "deadMembers" // it has found Member dead, with its Slots
	Left     Kind = "left"        // Run is about to return
)

// Change is the argument of Options.OnChange.
type Change struct {
	Kind   Kind
	Slots  shard.Set
	Member string // for Died
	Err    error  // for Lost and NotReady
}

// announcer counts, logs and publishes the changes of a member. It has no state of its own.
type announcer struct {
	state    *state
	log      *slog.Logger
	events   *eventWriter // nil: no Events
	onChange func(Change) // nil: none
}

// announce may be called from any goroutine, without a lock held.
func (a *announcer) announce(c Change) {
	if a.state.count(c) {
		level, attrs := slog.LevelInfo, []slog.Attr{}
		if c.Slots.Len() > 0 {
			attrs = append(attrs, slog.String("slots", c.Slots.String()))
		}
		if c.Member != "" {
			attrs = append(attrs, slog.String("dead", c.Member))
		}
		if c.Err != nil {
			level, attrs = slog.LevelWarn, append(attrs, slog.Any("error", c.Err))
		}
		a.log.LogAttrs(context.Background(), level, string(c.Kind), attrs...)
		a.events.enqueue(c)
	}
	if a.onChange != nil {
		a.onChange(c)
	}
}
