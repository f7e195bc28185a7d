package store

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

var _ source.Sharded = (*scope)(nil)

// share is the slots that a scope holds, if it does not hold all objects. Store.mu guards it.
type share struct {
	held     shard.Set
	unlisted shard.Set // part of held: new slots of which no list was applied yet
	gains    []gain
}

// gain is slots that were listed at a version that the scope has not reached yet.
type gain struct {
	slots shard.Set
	ver   version
}

// in reports whether an object is in one of some slots.
func (i *ident) in(set *shard.Set) bool {
	if set.Layout().By == shard.Namespace {
		return set.Has(i.ns, "")
	}
	return set.Has("", types.UID(i.uid()))
}

// within reports whether an entry of the overlay is of an object in one of the slots. told is false if the entry does
// not determine that.
func (ent *overlaid) within(set *shard.Set) (in, told bool) {
	if set.Layout().By == shard.Namespace {
		return set.Has(ent.ns, ""), true
	}
	if rec := ent.st.rec; rec != nil {
		return rec.id.in(set), true
	}
	return slices.ContainsFunc(ent.dead, func(d tomb) bool { return set.Has("", d.uid) }), len(ent.dead) > 0
}

// Hold implements source.Sharded. It collects the leaving objects without the lock, since no other goroutine fills the
// scope.
func (sc *scope) Hold(set shard.Set) {
	s := sc.s
	var leaving []*Record
	for r := range s.root.Load().base.inScope(sc.ns) {
		if !r.id.in(&set) {
			leaving = append(leaving, r)
		}
	}
	s.mu.Lock()
	wake := sc.hold(set, leaving)
	s.mu.Unlock()
	wake()
}

func (sc *scope) hold(set shard.Set, leaving []*Record) (wake func()) {
	if sc.dropped {
		return func() {}
	}
	s := sc.s
	if sc.share == nil {
		sc.share = &share{held: set.Layout().Set()}
	}
	h := sc.share
	h.unlisted = set.Minus(h.held).Union(h.unlisted).Both(set)
	h.held = set
	h.keepGains(func(g *gain) bool {
		g.slots = g.slots.Both(set)
		return !g.slots.IsEmpty()
	})
	cur := s.root.Load()
	next, e := root{base: cur.base}, &trie.Edit{}
	if len(leaving) > 0 {
		next.base = cur.base.copy()
	}
	gone := make(map[Key]bool, len(leaving))
	batch := make([]change, 0, len(leaving)+1)
	for _, r := range leaving {
		if _, ok := next.base.delete(e, r); ok {
			gone[r.Key()] = true
			batch = append(batch, change{typ: Left, relist: true, obj: r, prior: r})
		}
	}
	s.overlay.leave(sc, gone)
	s.ledger.leave(func(k Key) bool {
		if gone[k] || h.lacks(k.Namespace) {
			return true
		}
		_, ok := next.base.get(s.intern.hashKey(k.Namespace, k.Name), k)
		return !ok && set.Layout().By == shard.UID // the key may be of an object that has left
	})
	next.merged = s.overlay.rebuild(s, next.base)
	for k, q := range sc.quarantine {
		tells := q.Namespace != "" && set.Layout().By == shard.Namespace || q.UID != "" && set.Layout().By == shard.UID
		if set.IsEmpty() || tells && !set.Has(q.Namespace, types.UID(q.UID)) {
			delete(sc.quarantine, k)
		}
	}
	batch = append(batch, s.checkSynced()...)
	wake = s.publish(next, batch)
	for i := range batch {
		s.superseded(batch[i].prior)
	}
	sc.relisted()
	return wake
}

// relisted makes waiters check again after the content was changed other than by the watch.
func (sc *scope) relisted() {
	sc.s.notifyWaiters()
	sc.surveys.lists++
	sc.forget()
	sc.attend()
}

// lacks reports whether the namespace alone implies that none of its objects is held.
func (h *share) lacks(namespace string) bool {
	return h != nil && (h.held.IsEmpty() || h.held.Layout().By == shard.Namespace && !h.held.Has(namespace, ""))
}

// elsewhere reports whether an object is of a slot that is not held.
func (sc *scope) elsewhere(r *Record) bool { return sc.share != nil && !r.id.in(&sc.share.held) }

// vacant reports whether no slot is held, so that there are no objects to list.
func (sc *scope) vacant() bool { return sc.share != nil && sc.share.held.IsEmpty() }

// whole reports whether all held slots have been listed.
func (sc *scope) whole() bool { return sc.share == nil || sc.share.unlisted.IsEmpty() }

// came reports whether an object is of a new slot that is listed for the first time.
func (sc *scope) came(r *Record) bool { return sc.share != nil && r.id.in(&sc.share.unlisted) }

// has reports whether the slots are held and were listed.
func (h *share) has(slots shard.Set) bool {
	return slots.Minus(h.held.Minus(h.unlisted)).IsEmpty()
}

// listed records that the slots of a replacement were listed at a version.
func (sc *scope) listed(gained *shard.Set, ver version) {
	h := sc.share
	switch {
	case h == nil:
	case gained == nil:
		h.unlisted, h.gains = shard.Set{}, nil
	default:
		h.unlisted = h.unlisted.Minus(*gained)
		h.gains = append(h.gains, gain{*gained, ver})
		h.pass(sc.version)
	}
}

// pass forgets the gains that the scope has reached.
func (h *share) pass(ver version) {
	if h != nil && len(h.gains) > 0 {
		h.keepGains(func(g *gain) bool { return !ver.atLeast(g.ver) })
	}
}

// keepGains filters h.gains by keep, which may modify a gain.
func (h *share) keepGains(keep func(*gain) bool) {
	var kept []gain
	for _, g := range h.gains {
		if keep(&g) {
			kept = append(kept, g)
		}
	}
	h.gains = kept
}

// knew reports whether an object came with its slot, by a list at least as new as its version.
func (h *share) knew(r *Record) bool {
	return h != nil && slices.ContainsFunc(h.gains, func(g gain) bool { return r.id.in(&g.slots) && g.ver.atLeast(r.ver) })
}

// leave forgets the entries of objects that the scope does not hold any more: those in gone, and those whose entry
// determines the slot.
func (o *overlay) leave(sc *scope, gone map[Key]bool) {
	for k, ent := range o.entries {
		if sc.ns != "" && sc.ns != ent.ns {
			continue
		}
		if in, told := ent.within(&sc.share.held); told && !in || gone[k] {
			delete(o.entries, k)
		}
	}
}

// leave forgets the answers to writes of objects that have left. If an object comes back, its cursors get all its
// events.
func (l *ledger) leave(gone func(Key) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, win := range l.windows {
		if gone(k) {
			win.own = nil
			l.tidy(k, win)
		}
	}
}

// Gain implements source.Sharded.
func (sc *scope) Gain(slots shard.Set) source.Replacement {
	r := sc.Replace().(*replacement)
	r.gained, r.known = &slots, 0
	return r
}

// Covered reports whether the store can answer reads of all objects of a namespace that its labels and fields select.
// "" means all namespaces, or cluster-scoped objects. Without Options.Shard it is always true. In a store of some
// slots, the slot of the namespace must be held and listed. Slots come and go: ask before a read and after it.
func (s *Store) Covered(namespace string) bool {
	if s.opt.Shard == "" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes.of(namespace)
	if sc == nil || sc.share == nil {
		return false
	}
	h := sc.share
	if h.held.IsAll() {
		return h.unlisted.IsEmpty()
	}
	some := namespace != "" || !s.opt.Namespaced // not all namespaces
	return some && h.held.Layout().By == shard.Namespace && h.held.Has(namespace, "") &&
		!h.unlisted.Both(h.held).Has(namespace, "")
}

// Lacks reports whether an object is of a slot that the store does not hold (Options.Shard), so that its absence from
// the store proves no deletion. It is also true if the slot cannot be determined and not all slots are held.
func (s *Store) Lacks(namespace string, uid types.UID) bool {
	if s.opt.Shard == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes.of(namespace)
	if sc == nil || sc.share == nil {
		return true
	}
	held := &sc.share.held
	if uid == "" && held.Layout().By == shard.UID {
		return !held.IsAll()
	}
	return !held.Has(namespace, uid)
}

// Leave removes an object as if its slot had left, for a store that no source fills.
func (s *Store) Leave(k Key) {
	s.mu.Lock()
	cur := s.root.Load()
	prior, ok := cur.base.get(s.intern.hashKey(k.Namespace, k.Name), k)
	if !ok {
		s.mu.Unlock()
		return
	}
	next := root{base: cur.base.copy()}
	next.base.delete(nil, prior)
	delete(s.overlay.entries, k)
	next.merged = s.overlay.rebuild(s, next.base)
	wake := s.publish(next, []change{{typ: Left, relist: true, obj: prior, prior: prior}})
	s.superseded(prior)
	s.mu.Unlock()
	wake()
}

// Held returns the slots whose objects the store holds. ok is false for a store of all objects, and before a source has
// reported slots.
func (s *Store) Held() (held shard.Set, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.scopes {
		if sc.share != nil {
			return sc.share.held, true
		}
	}
	return shard.Set{}, false
}
