package store

import (
	"fmt"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

// replacement stages the complete content of one scope. A known object that has not changed costs a comparison and a
// mark; only other objects are staged.
type replacement struct {
	sc        *scope
	mark      uint32 // written to the ident of each known object that is listed
	begun     uint64 // clock of the overlay at the start: a list sees every write answered before
	known     int
	seen      int
	staged    []staged
	byKey     map[Key]int     // into staged
	gone      map[Key]version // removed
	unordered bool            // versions cannot be ordered
	defs      []*indexDef
	kept      []byte          // scratch
	prior     []byte          // scratch
	saved     bool            // it comes from disk
	unread    map[Key]version // quarantined during the list
	gained    *shard.Set      // the listed slots; nil: all that the scope holds
	done      bool
}

// Replace implements source.Sink.
func (sc *scope) Replace() source.Replacement {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks++
	r := &replacement{
		sc: sc, mark: s.marks, known: sc.count(), byKey: map[Key]int{}, gone: map[Key]version{}, unread: map[Key]version{},
		defs: s.defs, unordered: s.unordered,
	}
	r.begun = s.overlay.tick()
	sc.listing = r
	return r
}

// Put implements source.Replacement.
func (r *replacement) Put(o *source.Object) error {
	sc, s := r.sc, r.sc.s
	s.content.reduce(o)
	if err := sc.check(o); err != nil {
		s.stats.quarantined.Add(1)
		return err
	}
	ver := parseVersion(o.Header.ResourceVersion)
	prior, known := s.root.Load().base.find(s.intern, &o.Header)
	if r.isOutdated(o, ver, prior) {
		s.stats.suppressed.Add(1)
		return nil
	}
	twin := false
	if known {
		r.see(prior.id)
		if prior.ver.equal(ver) && prior.id.hasUID(o.Header.UID) {
			var err error
			if r.kept, _, err = s.content.append(r.kept[:0], o); err != nil {
				s.stats.quarantined.Add(1)
				return err
			}
			if s.contentSum(o.Encoding, r.kept) == prior.contentSum(&r.prior) {
				r.unstage(prior.Key())
				return nil
			}
			twin = true
		}
	}
	rec, err := s.newRecord(o, ver, prior)
	if err != nil {
		s.stats.quarantined.Add(1)
		return err
	}
	s.packSoon(rec)
	st := stage(rec, r.defs)
	st.twin = twin
	if i, again := r.byKey[rec.Key()]; again {
		s.superseded(r.staged[i].rec)
		r.staged[i] = st
		return nil
	}
	r.byKey[rec.Key()] = len(r.staged)
	r.staged = append(r.staged, st)
	return nil
}

// isOutdated reports whether the key has been put in a newer version, or removed at this or a newer version. A list may
// hold an object twice, and changes before the end of initial events may be replays. prior is nil for an unknown
// object.
func (r *replacement) isOutdated(o *source.Object, ver version, prior *Record) bool {
	listed := prior != nil && prior.id.mark.Load() == r.mark
	if r.unordered || !listed && len(r.byKey) == 0 && len(r.gone) == 0 {
		return false
	}
	h := &o.Header
	if gone, ok := r.gone[Key{string(h.Namespace), string(h.Name)}]; ok && gone.atLeast(ver) {
		return true
	}
	return r.isNewer(h, prior, ver)
}

// isNewer reports whether the key has been put in a newer version than this one. It is called for every object of a
// list and does not allocate: the compiler needs no memory for a key of a map lookup.
func (r *replacement) isNewer(h *source.Header, prior *Record, ver version) bool {
	if i, ok := r.byKey[Key{string(h.Namespace), string(h.Name)}]; ok {
		return r.staged[i].rec.ver.newer(ver)
	}
	return prior != nil && prior.id.mark.Load() == r.mark && prior.ver.newer(ver)
}

// see marks a known object as listed.
func (r *replacement) see(id *ident) {
	if id.mark.Swap(r.mark) != r.mark {
		r.seen++
	}
}

func (r *replacement) unstage(k Key) {
	if i, ok := r.byKey[k]; ok {
		r.sc.s.superseded(r.staged[i].rec)
		r.staged[i] = staged{}
		delete(r.byKey, k)
	}
}

// Remove implements source.Replacement.
func (r *replacement) Remove(o *source.Object) {
	h := &o.Header
	k, ver := Key{string(h.Namespace), string(h.Name)}, parseVersion(h.ResourceVersion)
	prior, _ := r.sc.s.root.Load().base.find(r.sc.s.intern, h)
	if !r.unordered && (r.isNewer(h, prior, ver) || r.unread[k].newer(ver)) {
		return // of an earlier incarnation
	}
	r.unstage(k)
	delete(r.unread, k)
	if !ver.isZero() {
		r.gone[k] = ver
	}
	if prior != nil && prior.id.mark.Load() == r.mark {
		prior.id.mark.Store(0)
		r.seen--
	}
}

// Missing implements source.Replacement.
func (r *replacement) Missing() (missing, known int) { return r.known - r.seen, r.known }

// Abort implements source.Replacement.
func (r *replacement) Abort() {
	r.sc.s.mu.Lock()
	defer r.sc.s.mu.Unlock()
	r.discard()
	r.end()
}

// discard releases the memory of the staged records.
func (r *replacement) discard() {
	for i := range r.staged {
		r.sc.s.superseded(r.staged[i].rec)
	}
}

func (r *replacement) end() {
	r.done = true
	r.staged, r.byKey, r.gone, r.kept = nil, nil, nil, nil
	if r.sc.listing == r {
		r.sc.listing = nil
	}
}

// Commit implements source.Replacement.
func (r *replacement) Commit(c source.Commit) {
	s := r.sc.s
	for {
		if wake, ok := r.tryCommit(c); ok {
			wake()
			return
		}
		r.defs = s.indexDefs()
		for i, st := range r.staged {
			if st.rec != nil {
				r.staged[i] = stage(st.rec, r.defs)
				r.staged[i].twin = st.twin
			}
		}
	}
}

// tryCommit builds the next state beside the current one, and publishes it at once. Only writers wait. ok is false if
// the indexes have changed since the objects were staged.
func (r *replacement) tryCommit(c source.Commit) (wake func(), ok bool) {
	sc, s := r.sc, r.sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.done || sc.dropped {
		r.discard()
		r.end()
		return func() {}, true
	}
	if !sameDefs(r.defs, s.defs) {
		return nil, false
	}
	cur := s.root.Load()
	e := &trie.Edit{}
	next := root{base: cur.base.copy()}
	initial := !sc.committed && !s.synced
	listVer := parseVersion(c.Version)
	var batch []change
	if c.Epoch {
		batch = append(batch, change{typ: Epoch, note: &note{version: c.Version, reason: c.Reason}})
	}
	for rec := range cur.base.inScope(sc.ns) {
		if r.gained != nil {
			break // the store had no objects of the new slots
		}
		if rec.id.mark.Load() == r.mark {
			continue
		}
		next.base.delete(e, rec)
		s.overlay.past.add(s.intern.seed, rec.id)
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: rec, prior: rec})
	}
	for i, st := range r.staged {
		rec := st.rec
		if rec == nil {
			continue
		}
		prior, _ := cur.base.objects.Find(rec)
		if !c.Epoch && (st.twin || prior != nil && !s.unordered && prior.ver.newer(rec.ver)) {
			s.stats.suppressed.Add(1)
			s.superseded(rec)
			continue
		}
		rec.adopt(prior)
		if prior != nil && !prior.SameUID(rec) {
			s.overlay.past.add(s.intern.seed, prior.id)
		}
		next.base.set(e, r.staged[i])
		from := len(batch)
		batch = changesOf(prior, rec, batch)
		for j := from; j < len(batch); j++ {
			batch[j].relist = true
			batch[j].initial = batch[j].typ == Added && (initial || sc.came(rec))
		}
		if unread, was := r.unread[rec.Key()]; was && !unread.newer(rec.ver) {
			delete(r.unread, rec.Key()) // it could be read after all
		}
	}
	for k := range sc.quarantine {
		if _, still := r.unread[k]; !still && r.gained == nil {
			sc.unquarantine(k)
		}
	}
	if c.Epoch {
		sc.version = version{}
		s.overlay.dropScope(sc.ns)
		s.ledger.dropScope(sc.ns)
		sc.forget()
		s.waiters.end(fmt.Errorf("%w: %s", ErrEpoch, c.Reason), func(w *waiter) bool { return w.concerns(sc) })
	}
	if r.gained == nil {
		sc.advance(listVer)
	}
	sc.listed(r.gained, listVer)
	ghosts := s.overlay.listed(s, sc, r.gained, r.begun, listVer, cur.base, next.base)
	for _, g := range ghosts {
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: g})
	}
	next.merged = s.overlay.rebuild(s, next.base)
	sc.committed, sc.resuming = true, r.saved
	batch = append(batch, s.checkSynced()...)
	s.stats.commits.Add(1)
	wake = s.publish(next, batch)
	for i := range batch {
		s.superseded(batch[i].prior)
	}
	sc.relisted()
	r.end()
	return wake, true
}
