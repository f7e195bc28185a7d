package store

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

var _ source.Sharded = (*scope)(nil)

// share is which of the objects a scope holds, where that is not all of them; guarded by Store.mu.
type share struct {
	held     shard.Set
	unlisted shard.Set // of held: they have come, and no list of them was applied yet
	gains    []gain
}

// gain is slots that are known up to a version that the scope has not reached yet.
type gain struct {
	slots shard.Set
	ver   version
}

// in says whether an object is in one of some slots.
func (i *ident) in(set *shard.Set) bool {
	if set.Layout().By == shard.Namespace {
		return set.Has(i.ns, "")
	}
	return set.Has("", types.UID(i.uid()))
}

// within says whether an entry of the overlay is of an object in one of some slots; told is false if it does not say.
func (ent *overlaid) within(set *shard.Set) (in, told bool) {
	if set.Layout().By == shard.Namespace {
		return set.Has(ent.ns, ""), true
	}
	if rec := ent.st.rec; rec != nil {
		return rec.id.in(set), true
	}
	return slices.ContainsFunc(ent.dead, func(d tomb) bool { return set.Has("", d.uid) }), len(ent.dead) > 0
}

// Hold implements source.Sharded. What has left is walked outside of the lock: nobody else fills the scope.
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
		return !ok && set.Layout().By == shard.UID // it may be of one that has left
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

// relisted has those who wait look again after the content was changed by other than the watch.
func (sc *scope) relisted() {
	sc.s.notifyWaiters()
	sc.surveys.lists++
	sc.forget()
	sc.attend()
}

// lacks says that no object of a namespace is held, as far as the namespace tells.
func (h *share) lacks(namespace string) bool {
	return h != nil && (h.held.IsEmpty() || h.held.Layout().By == shard.Namespace && !h.held.Has(namespace, ""))
}

// elsewhere says that an object is of a slot that is not held.
func (sc *scope) elsewhere(r *Record) bool { return sc.share != nil && !r.id.in(&sc.share.held) }

// vacant says that no slot is held, so that there is nothing to be listed.
func (sc *scope) vacant() bool { return sc.share != nil && sc.share.held.IsEmpty() }

// whole says that what is held has been listed.
func (sc *scope) whole() bool { return sc.share == nil || sc.share.unlisted.IsEmpty() }

// came says that an object is of a slot that has come and is being listed for the first time.
func (sc *scope) came(r *Record) bool { return sc.share != nil && r.id.in(&sc.share.unlisted) }

// has says that slots are held, and were listed.
func (h *share) has(slots shard.Set) bool {
	return slots.Minus(h.held.Minus(h.unlisted)).IsEmpty()
}

// listed notes that the slots of a replacement were listed at a version.
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

// keepGains keeps the gains that keep, which may change them, says.
func (h *share) keepGains(keep func(*gain) bool) {
	var kept []gain
	for _, g := range h.gains {
		if keep(&g) {
			kept = append(kept, g)
		}
	}
	h.gains = kept
}

// knew says that an object came with its slot by a list that was as new as its version.
func (h *share) knew(r *Record) bool {
	return h != nil && slices.ContainsFunc(h.gains, func(g gain) bool { return r.id.in(&g.slots) && g.ver.atLeast(r.ver) })
}

// leave forgets the entries of objects that the scope does not hold any more: those that the server has told of, and
// those that say of themselves where they are.
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

// leave forgets the answers to writes of objects that have left: who gets them back gets all that is told of them.
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

// Covered says whether the store is there for all objects of a namespace ("": all namespaces, or those that have none)
// that its labels and fields select: of a store of some slots, whether the slot of the namespace is held and was
// listed. Slots come and go: ask before a read and after it.
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

// Lacks says whether an object is of a slot that the store does not hold (Options.Shard): that it is not in the store
// says nothing about it. So it is of an object whose slot cannot be told, while not all are held.
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

// Leave has an object leave the store, as with its slot, for a store that is filled by other means than a source.
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

// Held returns the slots whose objects the store holds; ok is false for a store that
// was made to hold all objects, or that no source has told of slots yet.
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
