package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/source"
)

// The overlay of own writes: the answer to a write is laid over the store until the watch has brought it or something newer.
// It is kept as a second state, the view, which readers use; entries say where the view differs from the base, and why.
// Because both change in one step, with one pointer, there is no moment at which a read sees neither.
type overlay struct {
	entries map[Key]*overlaid
	clock   uint64 // counts answers and lists, to tell which lists began after which answers
}

// overlaid is one difference between view and base.
type overlaid struct {
	st    staged // the answered object; none for a tombstone or an object that left the scope
	dead  *ident // tombstone: this incarnation is gone
	ver   version
	ns    string
	clock uint64
	since time.Time
	told  bool // reported as overdue
}

// PutResult says what became of the answer to a write.
type PutResult uint8

const (
	// Overlaid: reads see it from now on.
	Overlaid PutResult = iota + 1
	// AlreadyKnown: the store has it, or something newer.
	AlreadyKnown
	// OutOfScope: the store does not hold such objects (namespace, selector); reads of it are not affected, or say NotFound.
	OutOfScope
	// NeedsBarrier: whether the store holds such objects cannot be decided here; wait for the cache instead.
	NeedsBarrier
	// Unversioned: the answer has no resource version.
	Unversioned
)

// String returns the name of the result.
func (r PutResult) String() string {
	return [...]string{"", "Overlaid", "AlreadyKnown", "OutOfScope", "NeedsBarrier", "Unversioned"}[min(r, Unversioned)]
}

func (o *overlay) init()        { o.entries = map[Key]*overlaid{} }
func (o *overlay) tick() uint64 { o.clock++; return o.clock }

// Put lays the answer to a successful create, update, patch or apply over the store.
func (s *Store) Put(enc source.Encoding, raw []byte) (PutResult, error) {
	rec, err := s.parse(enc, raw)
	if err != nil {
		return 0, err
	}
	return s.put(rec, nil), nil
}

// parse makes a record of an answer.
func (s *Store) parse(enc source.Encoding, raw []byte) (*Record, error) {
	o := source.Object{Raw: raw, Encoding: enc}
	if err := source.Scan(enc, raw, &o.Header); err != nil {
		return nil, fmt.Errorf("cannot read the answer: %w", err)
	}
	if len(o.Header.Name) == 0 {
		return nil, fmt.Errorf("cannot read the answer: %w", errNoName)
	}
	return s.newRecord(&o, parseVersion(o.Header.ResourceVersion))
}

// put calls record, under the lock, before any early return.
func (s *Store) put(rec *Record, record func()) PutResult {
	for st := stage(rec, s.indexDefs()); ; st = stage(rec, s.indexDefs()) {
		if result, ok := s.tryPut(st, record); ok {
			return result
		}
	}
}

func (s *Store) tryPut(st staged, record func()) (_ PutResult, ok bool) {
	rec := st.rec
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sameDefs(st.defs, s.defs) {
		return 0, false
	}
	if record != nil {
		record()
	}
	if rec.ver.isZero() {
		return Unversioned, true
	}
	sc := s.scopeOf(rec.Namespace())
	if sc == nil {
		return OutOfScope, true
	}
	cur := s.root.Load()
	prior, known := cur.base.objects.find(rec)
	if s.isApplied(sc, rec.ver, prior) {
		return AlreadyKnown, true
	}
	k := rec.Key()
	ent := s.overlay.entries[k]
	if ent != nil && (ent.dead != nil && ent.dead.sameUID(rec.id) || ent.ver.atLeast(rec.ver)) {
		return AlreadyKnown, true
	}
	in, decided := s.inScope(rec)
	if !decided {
		return NeedsBarrier, true
	}
	if !in && !known && ent == nil {
		return OutOfScope, true
	}
	if seen, ok := cur.view.objects.find(rec); ok {
		s.adopt(rec, seen)
	}
	ent = &overlaid{st: st, ver: rec.ver, ns: rec.Namespace(), clock: s.overlay.tick(), since: time.Now()}
	next := root{base: cur.base, view: cur.view.copy()}
	result := Overlaid
	if in {
		next.view.set(nil, st)
	} else {
		result = OutOfScope
		ent.st = staged{}
		next.view.delete(nil, rec)
	}
	s.overlay.entries[k] = ent
	s.publish(next, nil)
	return result, true
}

// isApplied says whether the base has seen a version; the caller holds s.mu.
func (s *Store) isApplied(sc *scope, ver version, prior *Record) bool {
	if s.odd {
		return prior != nil && prior.ver.equal(ver)
	}
	return sc.version.atLeast(ver) || prior != nil && prior.ver.atLeast(ver)
}

// PutDeleted makes reads say that an incarnation of an object is gone, after a delete was answered so. A uid that is not
// known is remembered until the next list.
func (s *Store) PutDeleted(k Key, uid types.UID) PutResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.putDeleted(k, uid)
}

func (s *Store) putDeleted(k Key, uid types.UID) PutResult {
	if s.scopeOf(k.Namespace) == nil {
		return OutOfScope
	}
	cur := s.root.Load()
	hash := s.intern.hashKey(k.Namespace, k.Name)
	seen, visible := cur.view.get(hash, k)
	if !visible || uid != "" && !seen.id.hasUID([]byte(uid)) {
		return AlreadyKnown // reads do not see that incarnation
	}
	_, known := cur.base.get(hash, k)
	next := root{base: cur.base, view: cur.view.copy()}
	next.view.delete(nil, seen)
	ent := s.overlay.entries[k]
	if ent != nil && ent.st.rec == seen && !known && s.scopeOf(k.Namespace).version.atLeast(seen.ver) {
		delete(s.overlay.entries, k) // the watch is past it
	} else {
		s.overlay.entries[k] = &overlaid{dead: seen.id, ver: seen.ver, ns: k.Namespace, clock: s.overlay.tick(), since: time.Now()}
	}
	if len(s.overlay.entries) == 0 {
		next.view = next.base
	}
	s.publish(next, nil)
	return Overlaid
}

// applied returns the next view after the base has taken st. The caller holds s.mu.
func (o *overlay) applied(s *Store, cur *root, base *state, st staged) *state {
	if len(o.entries) == 0 {
		return base
	}
	rec := st.rec
	if ent := o.entries[rec.Key()]; ent != nil {
		if ent.dead != nil && ent.dead.sameUID(rec.id) {
			return cur.view // an older change of what is gone
		}
		if ent.dead == nil && !s.odd && ent.ver.newer(rec.ver) {
			return cur.view // an older change does not evict
		}
		delete(o.entries, rec.Key())
		if len(o.entries) == 0 {
			return base
		}
	}
	view := cur.view.copy()
	view.set(nil, st)
	return view
}

// removed returns the next view after the base has lost rec, whose version is that of the deletion.
func (o *overlay) removed(s *Store, cur *root, base *state, rec *Record) *state {
	if len(o.entries) == 0 {
		return base
	}
	if ent := o.entries[rec.Key()]; ent != nil {
		switch {
		case ent.dead != nil && !ent.dead.sameUID(rec.id) && !s.odd:
			return cur.view
		case ent.dead == nil && !s.odd && ent.ver.newer(rec.ver):
			return cur.view // written after that deletion
		}
		delete(o.entries, rec.Key())
		if len(o.entries) == 0 {
			return base
		}
	}
	view := cur.view.copy()
	view.delete(nil, rec)
	return view
}

// listed drops the entries that a complete list has settled, and returns the ghosts: objects that we created, that were
// deleted while nobody watched, and that no event will ever mention.
func (o *overlay) listed(s *Store, sc *scope, begun uint64, list version, before, base *state) (ghosts []*Record) {
	for k, ent := range o.entries {
		if sc.ns != "" && sc.ns != ent.ns {
			continue
		}
		h := s.intern.hashKey(k.Namespace, k.Name)
		have, listed := base.get(h, k)
		had, known := before.get(h, k)
		begunAfter := ent.clock < begun
		reached := list.atLeast(ent.ver) && !s.odd
		switch {
		case ent.dead != nil: // gone unless the list, begun after the answer, still has that incarnation
			if !begunAfter || listed && have.id.sameUID(ent.dead) {
				continue
			}
		case ent.st.rec == nil: // left the scope
			if !reached && !(s.odd && begunAfter) {
				continue
			}
		case listed:
			if !have.ver.atLeast(ent.ver) && !(s.odd && begunAfter) {
				continue
			}
		case reached || s.odd && begunAfter:
			if !known {
				ghosts = append(ghosts, ent.st.rec)
			}
		case known && had.SameUID(ent.st.rec): // its deletion has been concluded: no later write can have succeeded
		default:
			continue
		}
		delete(o.entries, k)
	}
	slices.SortFunc(ghosts, func(a, b *Record) int { return strings.Compare(a.Key().String(), b.Key().String()) })
	return ghosts
}

// rebuild returns the view of a base with all entries laid over it.
func (o *overlay) rebuild(s *Store, base *state) *state {
	if len(o.entries) == 0 {
		return base
	}
	view, e := base.copy(), &edit{}
	for k, ent := range o.entries {
		if ent.st.rec != nil {
			if !sameDefs(ent.st.defs, s.defs) {
				continue // AddIndex stages them again
			}
			view.set(e, ent.st)
			continue
		}
		if have, ok := view.get(s.intern.hashKey(k.Namespace, k.Name), k); ok && (ent.dead == nil || ent.dead.sameUID(have.id)) {
			view.delete(e, have)
		}
	}
	return view
}

// dropScope forgets the entries of a namespace, or all for "".
func (o *overlay) dropScope(ns string) {
	maps.DeleteFunc(o.entries, func(_ Key, ent *overlaid) bool { return ns == "" || ent.ns == ns })
}

// OverlayStats describe the overlay.
type OverlayStats struct {
	Entries int
	Oldest  time.Duration
	Overdue []Key // older than Options.OverlayBound: read these live
}

const defaultOverlayBound = time.Minute

// OverlayStats returns the number and age of the own writes that the watch has not brought yet.
func (s *Store) OverlayStats() OverlayStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := OverlayStats{Entries: len(s.overlay.entries)}
	now, bound := time.Now(), s.overlayBound()
	for k, ent := range s.overlay.entries {
		age := now.Sub(ent.since)
		out.Oldest = max(out.Oldest, age)
		if age > bound {
			out.Overdue = append(out.Overdue, k)
		}
	}
	slices.SortFunc(out.Overdue, func(a, b Key) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func (s *Store) overlayBound() time.Duration {
	if s.opt.OverlayBound > 0 {
		return s.opt.OverlayBound
	}
	return defaultOverlayBound
}

// Overdue says that an own write of this key has been laid over for longer than Options.OverlayBound without the watch
// bringing it: the reader should ask the server. It costs one atomic load while there is no own write.
func (s *Store) Overdue(k Key) bool {
	if r := s.root.Load(); r.base == r.view {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ent := s.overlay.entries[k]
	if ent == nil || time.Since(ent.since) <= s.overlayBound() {
		return false
	}
	if !ent.told {
		ent.told = true
		s.logger.Warn("an own write is not confirmed by the watch", "key", k, "version", ent.ver.String(), "age", time.Since(ent.since))
	}
	return true
}

// fieldSelector is the part of a field selector that can be evaluated on any object.
type fieldSelector struct {
	sel       fields.Selector
	undecided bool
}

func parseSelectors(opt Options) (labels.Selector, fieldSelector) {
	f := fieldSelector{undecided: opt.ShardSelector != ""}
	sel, err := labels.Parse(opt.LabelSelector)
	if err != nil {
		sel, f.undecided = labels.Everything(), true
	}
	if f.sel, err = fields.ParseSelector(opt.FieldSelector); err != nil {
		f.sel, f.undecided = fields.Everything(), true
	}
	for _, r := range f.sel.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			f.undecided = true
		}
	}
	return sel, f
}

// SetSelectors tells the store that its sources watch with other selectors from now on; see source.Source.SetSelectors.
func (s *Store) SetSelectors(sel source.Selectors) {
	labels, fields := parseSelectors(Options{LabelSelector: sel.Label, FieldSelector: sel.Field, ShardSelector: sel.Shard})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.selector, s.fields = labels, fields
}

// inScope says whether the watch's selectors match; decided is false if that cannot be told here. The caller
// holds s.mu.
func (s *Store) inScope(r *Record) (in, decided bool) {
	if s.selector != nil && !s.selector.Matches(r.Labels()) {
		return false, true
	}
	if s.fields.undecided {
		return false, false
	}
	return s.fields.sel.Empty() || s.fields.sel.Matches(fields.Set{"metadata.name": r.Name(), "metadata.namespace": r.Namespace()}), true
}
