package store

import (
	"time"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
)

var (
	_ source.Sink     = (*scope)(nil)
	_ source.Surveyed = (*scope)(nil)
)

// Known implements source.Sink.
func (sc *scope) Known() source.Known {
	sc.s.mu.Lock()
	defer sc.s.mu.Unlock()
	return source.Known{Version: sc.version.String(), Count: sc.count()}
}

// Apply implements source.Sink for one change of the watch.
//
// A change that is older than the known state is suppressed, and counted. A known object is compared by its own
// version. An unknown object is compared by the version of the scope: an older change of it is a replay from before its
// deletion.
func (sc *scope) Apply(t source.ChangeType, o *source.Object) error {
	s := sc.s
	s.content.reduce(o)
	if err := sc.check(o); err != nil {
		s.stats.quarantined.Add(1)
		return err
	}
	ver := parseVersion(o.Header.ResourceVersion)
	if t == source.Deleted {
		return sc.applyDeleted(o, ver)
	}
	seen, prior, old := sc.look(o, ver)
	if old { // before the cost of making a record
		return nil
	}
	rec, err := s.newRecord(o, ver, prior)
	if err != nil {
		s.stats.quarantined.Add(1)
		return err
	}
	for st := stage(rec, s.indexDefs()); ; st = stage(rec, s.indexDefs()) {
		if wake, ok := sc.tryApply(st, seen, prior); ok {
			wake()
			s.packLater(rec)
			return nil
		}
	}
}

// look is a first check of the known state, so that a replay costs little. tryApply decides.
func (sc *scope) look(o *source.Object, ver version) (base *state, prior *Record, old bool) {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	base = s.root.Load().base
	prior, _ = base.find(s.intern, &o.Header)
	if !sc.isOld(ver, prior, false) {
		return base, prior, false
	}
	s.stats.suppressed.Add(1)
	return base, prior, true
}

// tryApply publishes a staged record. ok is false if the indexes have changed since. prior is valid as long as seen is
// the base.
func (sc *scope) tryApply(st staged, seen *state, prior *Record) (wake func(), ok bool) {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sameDefs(st.defs, s.defs) {
		return nil, false
	}
	cur := s.root.Load()
	rec := st.rec
	if cur.base != seen {
		prior, _ = cur.base.objects.Find(rec)
	}
	if sc.dropped || sc.isOld(rec.ver, prior, false) {
		s.stats.suppressed.Add(1)
		return func() {}, true
	}
	rec.adopt(prior)
	next := root{base: cur.base.copy()}
	next.base.set(nil, st)
	batch := changesOf(prior, rec, nil)
	next.merged = s.overlay.applied(s, cur, next.base, st, prior)
	sc.advance(rec.ver)
	sc.unquarantine(rec.Key())
	s.stats.applied.Add(1)
	wake = s.publish(next, batch)
	s.superseded(prior)
	s.notifyWaiters()
	return wake, true
}

func (sc *scope) applyDeleted(o *source.Object, ver version) error {
	s := sc.s
	prior, _ := s.root.Load().base.find(s.intern, &o.Header)
	unread := o.Raw == nil
	rec, err := s.newRecord(o, ver, prior) // the final state, for the subscribers
	if err != nil {                        // the object is deleted even if the final state is unreadable
		unread, o.Raw, o.Header.DeletionTimestamp = true, nil, nil
		rec, err = s.newRecord(o, ver, prior)
	}
	if err != nil {
		s.stats.quarantined.Add(1)
		return err
	}
	s.mu.Lock()
	wake := sc.deleteLocked(rec, unread)
	s.mu.Unlock()
	wake()
	return nil
}

func (sc *scope) deleteLocked(rec *Record, unread bool) (wake func()) {
	s := sc.s
	cur := s.root.Load()
	prior, known := cur.base.objects.Find(rec)
	if sc.dropped || sc.isOld(rec.ver, prior, known) {
		s.stats.suppressed.Add(1)
		return func() {}
	}
	next := root{base: cur.base}
	var batch []change
	if known {
		rec.adopt(prior)
		final := rec
		if unread || !rec.SameUID(prior) {
			final = prior // the final state is unreadable, or another incarnation came and went unseen
		}
		next.base = cur.base.copy()
		next.base.delete(nil, prior)
		batch = append(batch, change{typ: Deleted, obj: final, prior: prior, inferred: final == prior})
	}
	next.merged = s.overlay.removed(s, cur, next.base, rec, prior)
	sc.advance(rec.ver)
	sc.unquarantine(rec.Key())
	s.stats.applied.Add(1)
	wake = s.publish(next, batch)
	s.superseded(prior)
	s.notifyWaiters()
	return wake
}

// Bookmark implements source.Sink: everything up to version has been applied.
func (sc *scope) Bookmark(v string) {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if sc.dropped {
		return
	}
	sc.advance(parseVersion(v))
	if s.overlay.expire(s, sc.ns, time.Now().Add(-s.overlay.bound)) {
		base := s.root.Load().base
		s.publish(root{base: base, merged: base}, nil)
	}
	s.notifyWaiters()
}

// maxQuarantined bounds the number of unreadable objects that are remembered.
const maxQuarantined = 1000

// Quarantine implements source.Sink.
func (sc *scope) Quarantine(q source.Quarantined) {
	s := sc.s
	s.content.reduceQuarantined(&q)
	s.mu.Lock()
	k := Key{q.Namespace, q.Name}
	if _, again := sc.quarantine[k]; again || len(sc.quarantine) < maxQuarantined {
		if sc.quarantine == nil {
			sc.quarantine = map[Key]source.Quarantined{}
		}
		sc.quarantine[k] = q
	}
	s.stats.quarantined.Add(1)
	cur := s.root.Load()
	if sc.listing != nil { // the known state of the object stays
		sc.listing.unread[k] = parseVersion(q.Version)
		if prior, ok := cur.base.get(s.intern.hashKey(k.Namespace, k.Name), k); ok {
			sc.listing.see(prior.id)
		}
	}
	wake := s.publish(*cur, []change{{typ: QuarantinedObject, note: &note{quarantine: &q}}})
	s.mu.Unlock()
	wake()
}

// DropScope removes a scope that is not watched any more, with its objects, own writes and write windows. Subscribers
// get inferred deletions. Sink may add the namespace again.
func (s *Store) DropScope(namespace string) {
	s.mu.Lock()
	sc := s.scopes[namespace]
	if sc == nil {
		s.mu.Unlock()
		return
	}
	sc.dropped = true
	delete(s.scopes, namespace)
	sc.endSurveys()
	cur := s.root.Load()
	next := root{base: cur.base.copy(), merged: cur.merged.copy()}
	e := &trie.Edit{}
	var batch []change
	for r := range cur.base.inScope(namespace) {
		next.base.delete(e, r)
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: r, prior: r})
		s.superseded(r)
	}
	s.overlay.dropScope(namespace)
	s.ledger.dropScope(namespace)
	next.merged = s.overlay.rebuild(s, next.base)
	batch = append(batch, s.checkSynced()...)
	wake := s.publish(next, batch)
	s.notifyWaiters()
	s.mu.Unlock()
	wake()
}
