package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/shard"
)

// A change of the slots ends the watch of a scope. The scope then does the following:
//
//   - The sink first drops the lost slots. It also drops slots that were lost and have returned, because another holder
//     may have written in between.
//   - The scope lists the gained slots alone and adds them atomically. It uses a consistent list, or the initial events
//     of a watch if the server selects those by slot. The result includes the writes of the former holder.
//   - One watch of all held slots continues from its previous version. Changes of the new slots up to the version of
//     their list are dropped.
//
// Slots that stay are not listed again. Their events wait for the list of the gained slots. A failed list is retried
// like any other. If everything must be listed, that list is consistent and includes the new slots. A change during a
// list restarts it, so several quick changes cost one list.

// sharing is the slot state of a scope.
type sharing struct {
	slots    *shard.Set // slots that the sink holds; nil: all objects. Replaced under scope.mu
	turn     uint64     // turn of the Sharding at which slots was set
	unlisted shard.Set  // held slots that are not listed yet
	gains    []gain
	followed slotProgress // guarded by scope.mu
}

// gain is a set of slots that were listed at a version that the watch has not reached yet.
type gain struct {
	slots   shard.Set
	version string
	only    *snapshot // namespaces that were listed; nil: all
}

var (
	errSlots   = errors.New("slots have changed")
	errNoSlots = errors.New("no slot is held")
)

// holdSlots applies the current slots of the Sharding to the sink.
func (s *scope) holdSlots(ctx context.Context) {
	h := s.src.sharding
	if h == nil {
		return
	}
	set, turn, lost := h.since(s.turn)
	if turn == s.turn {
		return
	}
	had := *s.slots
	stay := had.Both(set).Minus(lost)
	s.log.InfoContext(ctx, "slots have changed", "slots", set.String(), "came", set.Minus(stay).String(),
		"left", had.Minus(stay).String())
	s.turn, s.unlisted = turn, set.Minus(stay).Union(s.unlisted).Both(set)
	s.keepGains(func(g *gain) bool {
		g.slots = g.slots.Both(stay)
		return !g.slots.IsEmpty()
	})
	s.mu.Lock()
	s.slots = &set
	s.mu.Unlock()
	sink := s.sink.(Sharded)
	back := had.Both(set).Both(lost)
	if !back.IsEmpty() {
		sink.Hold(set.Minus(back))
	}
	sink.Hold(set)
	if set.IsEmpty() || stay.IsEmpty() && !back.IsEmpty() {
		s.startOver()
	}
	s.follow()
}

// keepGains filters s.gains with keep, which may modify a gain.
func (s *scope) keepGains(keep func(*gain) bool) {
	var kept []gain
	for _, g := range s.gains {
		if keep(&g) {
			kept = append(kept, g)
		}
	}
	s.gains = kept
}

// follow publishes the progress of the scope and wakes the waiters of the Sharding.
func (s *scope) follow() {
	s.mu.Lock()
	s.followed.left = s.turn
	if s.unlisted.IsEmpty() {
		s.followed.listed = s.turn
	}
	s.mu.Unlock()
	s.src.sharding.comeFurther()
}

// startOver requests a consistent list of all held slots, because the sink has no content. It keeps the version seen,
// to detect a rollback of history.
func (s *scope) startOver() {
	s.relist, s.fresh, s.verify, s.pending = true, true, false, ""
	s.history, s.recent, s.gains = history{}, recent{}, nil
}

// restWithoutSlots waits until ctx is done if no slot is held. It reports whether that was so.
func (s *scope) restWithoutSlots(ctx context.Context) bool {
	if s.slots == nil || !s.slots.IsEmpty() {
		return false
	}
	if s.turn == 0 {
		s.report(Connecting, ReasonNoSlots, nil)
	} else {
		s.synced() // no object is missing
		s.report(Watching, ReasonNoSlots, nil)
	}
	<-ctx.Done()
	return true
}

// allListed records a list of all held slots at the version seen.
func (s *scope) allListed() {
	if s.slots == nil {
		return
	}
	s.unlisted, s.gains = shard.Set{}, nil
	s.follow()
}

// gainSlots lists the gained slots and adds them. If versions have no order, the scope cannot tell which changes of the
// watch are new. It then lists everything.
func (s *scope) gainSlots(ctx context.Context) error {
	set := s.unlisted
	if _, ordered := resourceversion.Compare(s.seen, s.seen); !ordered {
		s.relist, s.fresh = true, true
		return nil
	}
	traced, span := s.trace(ctx, "list")
	st, err := s.sync(traced, listOf{consistent: true, gained: &set})
	s.endListTrace(ctx, span, true, st, err)
	if st != nil { // the watch of all held slots continues instead
		st.close()
	}
	if err == errUnordered {
		s.relist, s.fresh = true, true
		return nil
	}
	return err
}

var errUnordered = errors.New("versions have no order")

// acceptGained commits a complete list of gained slots.
func (s *scope) acceptGained(l *listing) error {
	order, comparable := resourceversion.Compare(l.version, s.seen)
	switch {
	case !comparable:
		return errUnordered
	case order < 0:
		return fmt.Errorf("list of slots at version %s, known is %s: %w", l.version, s.seen, errRolledBack)
	}
	if c := s.doubt(l); c != nil {
		return c
	}
	l.committed = true
	s.unlisted = s.unlisted.Minus(*l.gained)
	s.gains = append(s.gains, gain{*l.gained, l.version, l.only})
	l.Replacement.Commit(Commit{Version: l.version, Reason: "slots have come"})
	s.count.Lists++
	s.contact()
	s.passGains()
	s.follow()
	return nil
}

// passGains removes the gains whose version the watch has reached. From there on recent detects replays.
func (s *scope) passGains() {
	if len(s.gains) == 0 {
		return
	}
	s.keepGains(func(g *gain) bool {
		if !resourceversion.AtLeast(s.seen, g.version) {
			return true
		}
		s.recent.reached(g.version)
		return false
	})
}

// wasListed reports whether the list of a gained slot includes this change. For a deletion only the sink can tell,
// because servers may send it with the previous version of the object.
func (s *scope) wasListed(e *event) bool {
	if e.change == Deleted {
		return false
	}
	h := &e.obj.Header
	return slices.ContainsFunc(s.gains, func(g gain) bool {
		order, ok := resourceversion.Compare(h.ResourceVersion, g.version)
		return ok && order <= 0 && g.slots.HasBytes(h.Namespace, h.UID) && g.only.has(h.Namespace)
	})
}

// isElsewhere reports whether an object belongs to a slot outside slots. It uses the hash of the server, so it does not
// matter whether the server has selected. An unreadable object without the member that determines its slot counts as
// inside.
func isElsewhere(slots *shard.Set, o *Object, unread bool) bool {
	if slots == nil {
		return false
	}
	h := &o.Header
	if slots.HasBytes(h.Namespace, h.UID) {
		return false
	}
	tells := len(h.Namespace) > 0
	if slots.Layout().By == shard.UID {
		tells = len(h.UID) > 0
	}
	return !unread || tells
}

// listedElsewhere counts an object of a list and reports whether its slot is not held.
func (s *scope) listedElsewhere(l *listing, e *event) bool {
	size := int64(len(e.obj.Raw))
	s.count.WireObjects++
	s.count.WireBytes += size
	s.inhabits(e.obj.Header.Namespace)
	slots := s.slots
	if l.gained != nil {
		slots = l.gained
	}
	if !isElsewhere(slots, &e.obj, e.err != nil) {
		return false
	}
	s.count.FilteredObjects++
	s.count.FilteredBytes += size
	return true
}

// changedElsewhere counts a change of a watch and reports whether the slot of its object is not held.
func (s *scope) changedElsewhere(e *event) bool {
	size := int64(len(e.obj.Raw))
	s.count.WireEvents++
	s.count.WireBytes += size
	s.inhabits(e.obj.Header.Namespace)
	if !isElsewhere(s.slots, &e.obj, e.err != nil) {
		return false
	}
	s.count.FilteredEvents++
	s.count.FilteredBytes += size
	return true
}

// isWhole reports whether all objects are held. Otherwise the server's remaining item count is useless, because it
// includes objects that the server does not send.
func (s *scope) isWhole() bool { return s.slots == nil || s.slots.IsAll() }

// heldSlots returns the slots that the sink holds. Any goroutine may call it.
func (s *scope) heldSlots() *shard.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots
}

// behindSlots describes the scope if it is behind.
func (s *scope) behindSlots(behind func(slotProgress) bool) (text string, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !behind(s.followed) {
		return "", false
	}
	text = s.src.cfg.Resource.GroupResource().String()
	if s.namespace != "" {
		text += " in " + s.namespace
	}
	text += fmt.Sprintf(" (%s: %s", s.status.Phase, s.status.Reason)
	if s.status.Message != "" {
		text += ": " + s.status.Message
	}
	return text + ")", true
}
