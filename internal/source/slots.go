package source

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/shard"
)

// Slots that change while a scope runs. What ends the watch is the change; then
//
//   - the sink forgets the slots that have left, before anything else; also those that have come back since: another
//     holder may have been at work meanwhile;
//   - those that have come are listed, by a consistent list of them alone, or by the initial events of a watch where the
//     server selects those too; that is not older than what their former holder wrote. They are added at once;
//   - one watch of all that is held goes on from the version that it had come to. What it brings of the new slots from
//     before their list is dropped: it has been listed.
//
// So what stays is never listed again, and its events wait for the list of what comes. When that list fails it is
// tried again like any other; when all has to be listed anyhow, that list brings the new slots too, and is consistent.
// A change in the middle of a list begins it anew: several quick ones cost one list.

// sharing is the part of a scope that knows of slots.
type sharing struct {
	slots    *shard.Set // whose objects the sink holds; nil: of all. Replaced under scope.mu
	turn     uint64     // of the Sharding: since when
	unlisted shard.Set  // of slots: they have come and are not listed yet
	gains    []gain
	followed slotProgress // guarded by scope.mu
}

// gain is slots that were listed at a version to which the watch has not come yet.
type gain struct {
	slots   shard.Set
	version string
	only    *snapshot // what was listed of them; nil: all
}

var (
	errSlots   = errors.New("slots have changed")
	errNoSlots = errors.New("no slot is held")
)

// holdSlots has the sink hold what the source is to hold now.
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

// keepGains keeps the gains that keep, which may change them, says.
func (s *scope) keepGains(keep func(*gain) bool) {
	var kept []gain
	for _, g := range s.gains {
		if keep(&g) {
			kept = append(kept, g)
		}
	}
	s.gains = kept
}

// follow notes how far the Sharding has been followed.
func (s *scope) follow() {
	s.mu.Lock()
	s.followed.left = s.turn
	if s.unlisted.IsEmpty() {
		s.followed.listed = s.turn
	}
	s.mu.Unlock()
	s.src.sharding.comeFurther()
}

// startOver has all be listed that is held next, since nothing is held now. The version seen stays: an older one tells
// that history went back meanwhile.
func (s *scope) startOver() {
	s.relist, s.fresh, s.verify, s.pending = true, true, false, ""
	s.history, s.recent, s.gains = history{}, recent{}, nil
}

// restWithoutSlots waits while no slot is held, and says whether none was.
func (s *scope) restWithoutSlots(ctx context.Context) bool {
	if s.slots == nil || !s.slots.IsEmpty() {
		return false
	}
	if s.turn == 0 {
		s.report(Connecting, ReasonNoSlots, nil)
	} else {
		s.synced() // there is nothing that could be missing
		s.report(Watching, ReasonNoSlots, nil)
	}
	<-ctx.Done()
	return true
}

// allListed notes that all that is held was listed at the version seen.
func (s *scope) allListed() {
	if s.slots == nil {
		return
	}
	s.unlisted, s.gains = shard.Set{}, nil
	s.follow()
}

// gainSlots lists the slots that have come and adds them. Where versions have no order it cannot be told what the watch
// brings of them anew: all is listed then.
func (s *scope) gainSlots(ctx context.Context) error {
	set := s.unlisted
	if _, ordered := resourceversion.Compare(s.seen, s.seen); !ordered {
		s.relist, s.fresh = true, true
		return nil
	}
	traced, span := s.trace(ctx, "list")
	st, err := s.sync(traced, listOf{consistent: true, gained: &set})
	s.endListTrace(ctx, span, true, st, err)
	if st != nil { // one watch of all that is held goes on
		st.close()
	}
	if err == errUnordered {
		s.relist, s.fresh = true, true
		return nil
	}
	return err
}

var errUnordered = errors.New("versions have no order")

// acceptGained adds a complete list of slots that have come.
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

// passGains forgets the gains to whose version the watch has come. From there on recent tells what was handed over.
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

// wasListed says that a change of an object that came with its slot was in the list already. Of a deletion only the
// sink can tell: servers may send it with the version that the object had before.
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

// isElsewhere says that an object is of a slot that is not among those. The hash is that of the server, so it is never
// asked whether it has selected. What cannot be read and does not tell its slot is everybody's.
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

// listedElsewhere counts an object of a list, and says whether it is held elsewhere.
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

// changedElsewhere counts a change of a watch, and says whether its object is held elsewhere.
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

// isWhole says that all objects are held. Otherwise what a server says of how many there are is of no use: it counts
// those that it does not send.
func (s *scope) isWhole() bool { return s.slots == nil || s.slots.IsAll() }

// heldSlots are those that the sink holds, for other goroutines than that of the scope.
func (s *scope) heldSlots() *shard.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots
}

// behindSlots describes a scope that is behind.
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
