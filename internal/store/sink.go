package store

import (
	"github.com/fairlead-io/fairlead/internal/source"
)

var (
	_ source.Sink     = (*scope)(nil)
	_ source.Surveyed = (*scope)(nil)
)

// Known implements source.Sink.
func (sc *scope) Known() source.Known {
	in := sc.in
	in.pub.lock()
	defer in.pub.unlock()
	return source.Known{Version: sc.version.String(), Count: sc.count(in.pub.current().base)}
}

// Apply implements source.Sink for one change of the watch.
//
// A change that is older than the known state is suppressed, and counted. A known object is compared by its own
// version. An unknown object is compared by the version of the scope: an older change of it is a replay from before its
// deletion.
func (sc *scope) Apply(t source.ChangeType, o *source.Object) error {
	in := sc.in
	in.codec.content.reduce(o)
	if err := sc.admits(o); err != nil {
		in.stats.quarantined.Add(1)
		return err
	}
	ver := parseVersion(o.Header.ResourceVersion)
	if t == source.Deleted {
		return sc.applyDeleted(o, ver)
	}
	seen, prior, old := sc.precheck(o, ver)
	if old { // before the cost of making a record
		return nil
	}
	rec, err := in.codec.newRecord(o, ver, prior)
	if err != nil {
		in.stats.quarantined.Add(1)
		return err
	}
	for st := stage(rec, in.pub.indexDefs()); ; st = stage(rec, in.pub.indexDefs()) {
		if wake, ok := sc.tryApply(st, seen, prior); ok {
			wake()
			in.codec.packLater(rec)
			return nil
		}
	}
}

// precheck is a first check of the known state, so that a replay costs little. tryApply decides.
func (sc *scope) precheck(o *source.Object, ver version) (base *state, prior *Record, old bool) {
	in := sc.in
	in.pub.lock()
	defer in.pub.unlock()
	base = in.pub.current().base
	prior, _ = base.find(in.codec.intern, &o.Header)
	if !sc.isOld(ver, prior, false) {
		return base, prior, false
	}
	in.stats.suppressed.Add(1)
	return base, prior, true
}

// tryApply publishes a staged record. ok is false if the indexes have changed since. prior is valid as long as seen is
// the base.
func (sc *scope) tryApply(st staged, seen *state, prior *Record) (wake func(), ok bool) {
	in := sc.in
	in.pub.lock()
	defer in.pub.unlock()
	if !in.pub.hasIndexes(st.defs) {
		return nil, false
	}
	cur := in.pub.current()
	rec := st.rec
	if cur.base != seen {
		prior, _ = cur.base.objects.Find(rec)
	}
	if sc.dropped || sc.isOld(rec.ver, prior, false) {
		in.stats.suppressed.Add(1)
		return func() {}, true
	}
	rec.adopt(prior)
	next := root{base: cur.base.copy()}
	next.base.set(nil, st)
	batch := changesOf(prior, rec, nil)
	next.merged = in.overlay.applied(cur, next.base, st, prior)
	sc.advance(rec.ver)
	sc.unquarantine(rec.Key())
	in.stats.applied.Add(1)
	wake = in.pub.publish(next, batch)
	in.codec.superseded(prior)
	in.waits.notify()
	return wake, true
}

func (sc *scope) applyDeleted(o *source.Object, ver version) error {
	in := sc.in
	prior, _ := in.pub.current().base.find(in.codec.intern, &o.Header)
	unread := o.Raw == nil
	rec, err := in.codec.newRecord(o, ver, prior) // the final state, for the subscribers
	if err != nil {                               // the object is deleted even if the final state is unreadable
		unread, o.Raw, o.Header.DeletionTimestamp = true, nil, nil
		rec, err = in.codec.newRecord(o, ver, prior)
	}
	if err != nil {
		in.stats.quarantined.Add(1)
		return err
	}
	in.pub.lock()
	wake := sc.deleteLocked(rec, unread)
	in.pub.unlock()
	wake()
	return nil
}

func (sc *scope) deleteLocked(rec *Record, unread bool) (wake func()) {
	in := sc.in
	cur := in.pub.current()
	prior, known := cur.base.objects.Find(rec)
	if sc.dropped || sc.isOld(rec.ver, prior, known) {
		in.stats.suppressed.Add(1)
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
	next.merged = in.overlay.removed(cur, next.base, rec, prior)
	sc.advance(rec.ver)
	sc.unquarantine(rec.Key())
	in.stats.applied.Add(1)
	wake = in.pub.publish(next, batch)
	in.codec.superseded(prior)
	in.waits.notify()
	return wake
}

// Bookmark implements source.Sink: everything up to version has been applied.
func (sc *scope) Bookmark(v string) {
	in := sc.in
	in.pub.lock()
	defer in.pub.unlock()
	if sc.dropped {
		return
	}
	sc.advance(parseVersion(v))
	if in.overlay.expire(sc.ns) {
		in.pub.publishBase()
	}
	in.waits.notify()
}

// Quarantine implements source.Sink.
func (sc *scope) Quarantine(q source.Quarantined) {
	in := sc.in
	in.codec.content.reduceQuarantined(&q)
	in.pub.lock()
	k := Key{q.Namespace, q.Name}
	if _, again := sc.quarantine[k]; again || len(sc.quarantine) < maxQuarantined {
		if sc.quarantine == nil {
			sc.quarantine = map[Key]source.Quarantined{}
		}
		sc.quarantine[k] = q
	}
	in.stats.quarantined.Add(1)
	cur := in.pub.current()
	if sc.listing != nil { // the known state of the object stays
		sc.listing.unread[k] = parseVersion(q.Version)
		if prior, ok := cur.base.get(in.codec.intern.hashOf(k), k); ok {
			sc.listing.see(prior.id)
		}
	}
	wake := in.pub.publish(*cur, []change{{typ: QuarantinedObject, note: &note{quarantine: &q}}})
	in.pub.unlock()
	wake()
}

// Report implements source.Sink.
func (sc *scope) Report(st source.Status) { sc.in.report(sc.coverage, st) }

// Survey implements source.Surveyed.
func (sc *scope) Survey(by *source.Surveyor) { sc.surveys.fill(by) }
