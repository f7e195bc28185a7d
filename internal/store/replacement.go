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
	in := sc.in
	in.pub.lock()
	defer in.pub.unlock()
	in.marks++
	r := &replacement{
		sc: sc, mark: in.marks, known: sc.count(in.pub.current().base), byKey: map[Key]int{}, gone: map[Key]version{},
		unread: map[Key]version{},
		defs:   in.pub.indexes(), unordered: in.order.opaque,
	}
	r.begun = in.overlay.tick()
	sc.listing = r
	return r
}

// Put implements source.Replacement.
func (r *replacement) Put(o *source.Object) error {
	sc, in := r.sc, r.sc.in
	in.codec.content.reduce(o)
	if err := sc.admits(o); err != nil {
		in.stats.quarantined.Add(1)
		return err
	}
	ver := parseVersion(o.Header.ResourceVersion)
	prior, known := in.pub.current().base.find(in.codec.intern, &o.Header)
	if r.isOutdated(o, ver, prior) {
		in.stats.suppressed.Add(1)
		return nil
	}
	twin := false
	if known {
		r.see(prior.id)
		if prior.ver.equal(ver) && prior.id.hasUID(o.Header.UID) {
			var err error
			if r.kept, _, err = in.codec.content.append(r.kept[:0], o); err != nil {
				in.stats.quarantined.Add(1)
				return err
			}
			if in.codec.contentSum(encoded{o.Encoding, r.kept}) == prior.contentSum(&r.prior) {
				r.unstage(prior.Key())
				return nil
			}
			twin = true
		}
	}
	rec, err := in.codec.newRecord(o, ver, prior)
	if err != nil {
		in.stats.quarantined.Add(1)
		return err
	}
	in.codec.packSoon(rec)
	st := stage(rec, r.defs)
	st.twin = twin
	if i, again := r.byKey[rec.Key()]; again {
		in.codec.superseded(r.staged[i].rec)
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
		r.sc.in.codec.superseded(r.staged[i].rec)
		r.staged[i] = staged{}
		delete(r.byKey, k)
	}
}

// Remove implements source.Replacement.
func (r *replacement) Remove(o *source.Object) {
	h := &o.Header
	k, ver := Key{string(h.Namespace), string(h.Name)}, parseVersion(h.ResourceVersion)
	prior, _ := r.sc.in.pub.current().base.find(r.sc.in.codec.intern, h)
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
	r.sc.in.pub.lock()
	defer r.sc.in.pub.unlock()
	r.discard()
	r.end()
}

// discard releases the memory of the staged records.
func (r *replacement) discard() {
	for i := range r.staged {
		r.sc.in.codec.superseded(r.staged[i].rec)
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
	in := r.sc.in
	for {
		if wake, ok := r.tryCommit(c); ok {
			wake()
			return
		}
		r.defs = in.pub.indexDefs()
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
	sc, in := r.sc, r.sc.in
	in.pub.lock()
	defer in.pub.unlock()
	if r.done || sc.dropped {
		r.discard()
		r.end()
		return func() {}, true
	}
	if !in.pub.hasIndexes(r.defs) {
		return nil, false
	}
	cur := in.pub.current()
	e := &trie.Edit{}
	next := root{base: cur.base.copy()}
	initial := !sc.committed && !in.pub.isSynced()
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
		in.overlay.lost(rec)
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: rec, prior: rec})
	}
	for i, st := range r.staged {
		rec := st.rec
		if rec == nil {
			continue
		}
		prior, _ := cur.base.objects.Find(rec)
		if !c.Epoch && (st.twin || prior != nil && !in.order.opaque && prior.ver.newer(rec.ver)) {
			in.stats.suppressed.Add(1)
			in.codec.superseded(rec)
			continue
		}
		rec.adopt(prior)
		if prior != nil && !prior.SameUID(rec) {
			in.overlay.lost(prior)
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
		in.overlay.dropScope(sc.ns)
		in.ledger.dropScope(sc.ns)
		sc.surveys.forget()
		in.waits.reset(sc.coverage, fmt.Errorf("%w: %s", ErrEpoch, c.Reason))
	}
	if r.gained == nil {
		sc.advance(listVer)
	}
	sc.listed(r.gained, listVer)
	ghosts := in.overlay.listed(sc.ns, r.gained, r.begun, listVer, cur.base, next.base)
	for _, g := range ghosts {
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: g})
	}
	next.merged = in.overlay.rebuild(next.base)
	sc.committed, sc.resuming = true, r.saved
	sc.status.Synced = sc.status.Synced || !r.saved // the source reports it later, when its phase changes
	batch = append(batch, in.checkSynced()...)
	in.stats.commits.Add(1)
	wake = in.pub.publish(next, batch)
	for i := range batch {
		in.codec.superseded(batch[i].prior)
	}
	in.codec.packRest()
	sc.surveys.relisted()
	r.end()
	return wake, true
}
