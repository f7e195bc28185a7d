package store

import (
	"fmt"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/shard"
)

// replacement stages the complete content of one scope. What is known already and has not changed costs a comparison
// and a mark; only the rest is staged.
type replacement struct {
	sc        *scope
	mark      uint32 // written to the ident of each known object that is listed
	begun     uint64 // clock of the overlay when it began: a list sees every write answered before
	known     int
	seen      int
	staged    []staged
	byKey     map[Key]int     // into staged
	gone      map[Key]version // removed
	unordered bool            // versions say nothing about before and after
	defs      []*indexDef
	kept      []byte          // scratch
	prior     []byte          // scratch
	saved     bool            // it comes from disk
	unread    map[Key]version // quarantined meanwhile
	gained    *shard.Set      // the slots that it is of; nil: all that the scope holds
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

// isOutdated says that the key has been put in a newer version, or removed in this or a newer one: a list may hold it
// twice, and what comes before the end of initial events may be a replay. prior is nil for an object that is not
// known.
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

// isNewer says that the key has been put in a newer version than this one. It is asked for every object of a list, and
// allocates nothing: a key that is made for a look into a map needs no memory.
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

// discard gives back the memory of what was staged.
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

// tryCommit builds the next state beside the current one: readers go on with that, and see all of the difference or
// nothing. Only writers wait.
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
			break // of slots that have come nothing was known
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
