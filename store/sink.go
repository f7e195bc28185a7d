package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead/internal/trie"
	"github.com/fairlead-io/fairlead/source"
)

// scope implements source.Sink: one namespace, or all of them.
type scope struct {
	s  *Store
	ns string

	// All of it is guarded by Store.mu.
	version    version
	committed  bool
	resuming   bool // what was loaded from disk is not known to be current yet
	dropped    bool
	status     source.Status
	quarantine map[Key]source.Quarantined
	listing    *replacement
	surveys    surveys
}

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

// count is the number of objects that the server has told of; the caller holds s.mu.
func (sc *scope) count() int {
	base := sc.s.root.Load().base
	if sc.ns == "" {
		return base.objects.Len()
	}
	n := 0
	for g := range base.groups.All() {
		if g.shape.ns == sc.ns {
			n += g.ids.Len()
		}
	}
	return n
}

// refused says that the server does not let this scope be listed.
func (sc *scope) refused() bool {
	if sc.status.Phase != source.Degraded {
		return false
	}
	switch sc.status.Reason {
	case source.ReasonUnauthorized, source.ReasonForbidden, source.ReasonNotFound:
		return true
	}
	return false
}

var (
	errNoName    = errors.New("object has no name")
	errForeignNS = errors.New("object is not in the namespace of its scope")
)

// Apply implements source.Sink: one change of the watch.
//
// A change is suppressed, and counted, when it is older than what is known: for a known object by its own version, for an
// unknown one by the version of the scope, because an older change of an object that is not there is a replay from before
// its deletion.
func (sc *scope) Apply(t source.ChangeType, o *source.Object) error {
	s := sc.s
	if err := sc.check(o); err != nil {
		s.stats.quarantined.Add(1)
		return err
	}
	ver := parseVersion(o.Header.ResourceVersion)
	if t == source.Deleted {
		return sc.applyDeleted(o, ver)
	}
	seen, prior, old := sc.look(o, ver)
	if old { // before the work of making a record
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

func (sc *scope) check(o *source.Object) error {
	switch {
	case len(o.Header.Name) == 0 || len(o.Header.Name) > 1<<15:
		return fmt.Errorf("cannot keep object %q: %w", o.Header.Name, errNoName)
	case sc.ns != "" && sc.ns != string(o.Header.Namespace):
		return fmt.Errorf("cannot keep object %s/%s in scope %q: %w", o.Header.Namespace, o.Header.Name, sc.ns, errForeignNS)
	}
	return nil
}

// find returns what the server has told of the object before.
func (s *Store) find(base *state, o *source.Object) (*Record, bool) {
	return base.objects.Get(s.intern.hashKeyBytes(o.Header.Namespace, o.Header.Name), func(r *Record) bool {
		return r.id.name() == string(o.Header.Name) && r.id.ns == string(o.Header.Namespace)
	})
}

// look is a first look at what is known, so that a replay costs little; tryApply decides.
func (sc *scope) look(o *source.Object, ver version) (base *state, prior *Record, old bool) {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	base = s.root.Load().base
	prior, _ = s.find(base, o)
	if !sc.isOld(ver, prior, false) {
		return base, prior, false
	}
	s.stats.suppressed.Add(1)
	return base, prior, true
}

// isOld says whether a change is older than what is known, or the same; the caller holds s.mu.
func (sc *scope) isOld(ver version, prior *Record, deleted bool) bool {
	known := sc.version
	if prior != nil {
		known = prior.ver
	}
	if known.isZero() || ver.isZero() {
		return false
	}
	order, ok := ver.compare(known)
	if !ok || sc.s.unordered {
		return prior != nil && !deleted && ver.equal(known)
	}
	if deleted {
		return order < 0
	}
	return order < 0 || order == 0
}

// advance moves the version of the scope; the caller holds s.mu.
func (sc *scope) advance(ver version) {
	if ver.isZero() {
		return
	}
	if ver.text != nil && len(*ver.text) <= 18 {
		sc.s.unordered = true
	}
	if order, ok := ver.compare(sc.version); !ok || order > 0 {
		sc.version = ver
	}
}

// tryApply publishes a staged record, unless the indexes have changed since. What was prior to it in the state seen is what is
// prior to it as long as that is the state.
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
	s.adopt(rec, prior)
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

// adopt lets a new version of an object share the identity of the one before.
func (s *Store) adopt(rec, prior *Record) {
	if prior != nil && rec.id != prior.id && rec.SameUID(prior) {
		rec.id = prior.id
	}
}

// changesOf is what cursors are told; a changed uid is a deletion and an addition.
func changesOf(prior, rec *Record, batch []change) []change {
	switch {
	case prior == nil:
		return append(batch, change{typ: Added, obj: rec})
	case prior.SameUID(rec):
		return append(batch, change{typ: Modified, obj: rec, prior: prior})
	}
	return append(batch, change{typ: Deleted, inferred: true, obj: prior, prior: prior}, change{typ: Added, obj: rec})
}

func (sc *scope) applyDeleted(o *source.Object, ver version) error {
	s := sc.s
	prior, _ := s.find(s.root.Load().base, o)
	unread := o.Raw == nil
	rec, err := s.newRecord(o, ver, prior) // the final state, for the subscribers
	if err != nil {                        // without which it is gone all the same
		unread, o.Header.DeletionTimestamp = true, nil
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
		s.adopt(rec, prior)
		final := rec
		if unread || !rec.SameUID(prior) {
			final = prior // its last state cannot be read, or another incarnation came and went unseen
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
	if s.overlay.expire(s, sc.ns, time.Now().Add(-s.overlayBound())) {
		base := s.root.Load().base
		s.publish(root{base: base, merged: base}, nil)
	}
	s.notifyWaiters()
}

// maxQuarantined bounds what is kept of objects that could not be read.
const maxQuarantined = 1000

// Quarantine implements source.Sink.
func (sc *scope) Quarantine(q source.Quarantined) {
	s := sc.s
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
	if sc.listing != nil { // what is known of it stays known
		sc.listing.unread[k] = parseVersion(q.Version)
		if prior, ok := cur.base.get(s.intern.hashKey(k.Namespace, k.Name), k); ok {
			sc.listing.see(prior.id)
		}
	}
	wake := s.publish(*cur, []change{{typ: QuarantinedObject, note: &note{quarantine: &q}}})
	s.mu.Unlock()
	wake()
}

// unquarantine forgets what could not be read once it can; the caller holds s.mu.
func (sc *scope) unquarantine(k Key) {
	if len(sc.quarantine) > 0 {
		delete(sc.quarantine, k)
	}
}

// Quarantined returns the objects that could not be read and have not been replaced by ones that can.
func (s *Store) Quarantined() []source.Quarantined {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quarantined()
}

// quarantined is Quarantined; the caller holds s.mu.
func (s *Store) quarantined() (out []source.Quarantined) {
	for _, sc := range s.scopes {
		for _, q := range sc.quarantine {
			out = append(out, q)
		}
	}
	return out
}

// DropScope ends a scope that is not watched any more: its objects, own writes and write windows go away, and subscribers are
// told of inferred deletions. The namespace may be added again with Sink.
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

func sameDefs(a, b []*indexDef) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

func (s *Store) indexDefs() []*indexDef {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.defs
}
