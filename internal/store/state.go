package store

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/trie"
)

// state is one version of the objects and their indexes. It never changes after it was published. The next version is
// an edited copy, which shares the unchanged parts.
//
// There are two states at a time. The base is what the server reported; cursors are fed from it. The merged state is
// the base with own writes laid over it; reads use it. Without own writes they are the same pointer, so an empty
// overlay costs readers nothing.
type state struct {
	objects trie.Map[*Record, recordKeys]
	groups  trie.Map[*group, groupKeys] // one for each shape that is in use
	facets  [facetKinds]*facets
	indexes []*index // user-defined ones, in the order of Store.defs
}

// group is the set of objects of one shape.
type group struct {
	shape *shape
	ids   trie.Map[*ident, identKeys]
}

// groupKeys compares groups by their shape.
type groupKeys struct{}

func (groupKeys) Hash(g *group) uint64  { return g.shape.hash }
func (groupKeys) Same(a, b *group) bool { return a.shape == b.shape }

// get returns the record of key k with hash h.
func (s *state) get(h uint64, k Key) (*Record, bool) {
	return s.objects.Get(h, func(r *Record) bool { return r.id.is(k) })
}

// find returns the record of the key of a header.
func (s *state) find(in *interner, h *source.Header) (*Record, bool) {
	return s.objects.Get(in.hashKeyBytes(h.Namespace, h.Name), func(r *Record) bool {
		return r.id.name() == string(h.Name) && r.id.ns == string(h.Namespace)
	})
}

// lookup resolves an ident of one of the indexes of s.
func (s *state) lookup(id *ident) (*Record, bool) {
	return s.objects.Get(id.hash, func(r *Record) bool { return r.id == id || r.id.sameKey(id) })
}

// set adds or replaces a record. It changes s, which the caller has copied.
func (s *state) set(e *trie.Edit, st staged) (old *Record) {
	r := st.rec
	var replaced bool
	s.objects, old, replaced = s.objects.Set(e, r)
	if !replaced || old.shape != r.shape || old.id != r.id {
		if replaced {
			s.leave(e, old)
		}
		s.join(e, r)
	}
	for _, x := range s.indexes {
		x.set(e, r.id, st.valuesOf(x.def))
	}
	if !replaced {
		return nil
	}
	return old
}

// delete removes the record with the key of r. It changes s, which the caller has copied.
func (s *state) delete(e *trie.Edit, r *Record) (old *Record, ok bool) {
	s.objects, old, ok = s.objects.Delete(e, r)
	if !ok {
		return nil, false
	}
	s.leave(e, old)
	for _, x := range s.indexes {
		x.set(e, old.id, indexValues{})
	}
	return old, true
}

func (s *state) join(e *trie.Edit, r *Record) {
	g := group{shape: r.shape}
	if had, ok := s.groups.Find(&g); ok {
		g.ids = had.ids
	} else {
		s.use(e, r.shape, true)
	}
	g.ids, _, _ = g.ids.Set(e, r.id)
	s.groups, _, _ = s.groups.Set(e, &g)
}

func (s *state) leave(e *trie.Edit, r *Record) {
	g := group{shape: r.shape}
	had, ok := s.groups.Find(&g)
	if !ok {
		return
	}
	g.ids, _, _ = had.ids.Delete(e, r.id)
	if g.ids.Len() == 0 {
		s.groups, _, _ = s.groups.Delete(e, &g)
		s.use(e, r.shape, false)
		return
	}
	s.groups, _, _ = s.groups.Set(e, &g)
}

// use updates the facets when a shape comes into use or goes out of use.
func (s *state) use(e *trie.Edit, sh *shape, used bool) {
	for kind, x := range s.facets {
		if x != nil {
			s.facets[kind] = x.updated(e, facetKind(kind), sh, used)
		}
	}
}

// copy returns a state that may be changed without effect on s.
func (s *state) copy() *state {
	next := *s
	if len(s.indexes) > 0 {
		next.indexes = make([]*index, len(s.indexes))
		for i, x := range s.indexes {
			c := *x
			next.indexes[i] = &c
		}
	}
	return &next
}

// all yields every record.
func (s *state) all() iter.Seq[*Record] { return s.objects.All() }

// where yields the records of the shapes that match.
func (s *state) where(match func(*shape) bool) iter.Seq[*Record] {
	return s.among(s.groups.All(), match)
}

// among yields the records of those groups whose shape matches.
func (s *state) among(groups iter.Seq[*group], match func(*shape) bool) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for g := range groups {
			if !match(g.shape) {
				continue
			}
			for id := range g.ids.All() {
				if r, ok := s.lookup(id); ok && !yield(r) {
					return
				}
			}
		}
	}
}

// inScope yields the records of a namespace, or all for "".
func (s *state) inScope(ns string) iter.Seq[*Record] {
	if ns == "" {
		return s.all()
	}
	return s.faceted(byNamespace, "", ns, func(sh *shape) bool { return sh.ns == ns })
}

// faceted is like where, restricted to a facet if there are facets of that kind. match must imply the facet.
func (s *state) faceted(kind facetKind, key, value string, match func(*shape) bool) iter.Seq[*Record] {
	if groups, ok := s.having(kind, key, value); ok {
		return s.among(groups, match)
	}
	return s.where(match)
}

// byIndex yields the records for a value of an index, built-in or user-defined; ok is false if there is no such index.
func (s *state) byIndex(name, value string) (_ iter.Seq[*Record], ok bool) {
	switch name {
	case IndexNamespace:
		return s.faceted(byNamespace, "", value, func(sh *shape) bool { return sh.ns == value }), true
	case IndexLabel:
		match := func(sh *shape) bool { return hasLabel(sh.labels, value) }
		if k, v, pair := strings.Cut(value, "="); pair {
			return s.faceted(byLabel, k, v, match), true
		}
		return s.where(match), true
	case IndexOwner:
		return s.faceted(byOwner, "", value, func(sh *shape) bool {
			return slices.ContainsFunc(sh.owners, func(o Owner) bool { return string(o.UID) == value })
		}), true
	}
	for _, x := range s.indexes {
		if x.def.name != name || x.building {
			continue
		}
		return func(yield func(*Record) bool) {
			if b, ok := x.find(value); ok {
				s.lookupAll(b, yield)
			}
		}, true
	}
	return func(func(*Record) bool) {}, false
}

// lookupAll yields the records of a bucket.
func (s *state) lookupAll(b *bucket, yield func(*Record) bool) {
	for id := range b.ids.All() {
		if r, ok := s.lookup(id); ok && !yield(r) {
			return
		}
	}
}

// hasLabel reports whether the set has a label expr, "key=value" or "key". It builds no strings.
func hasLabel(set labelSet, expr string) bool {
	for _, l := range set {
		n := len(l.Key)
		if len(expr) == n && expr == l.Key || len(expr) == n+1+len(l.Value) && expr[n] == '=' && expr[:n] == l.Key &&
			expr[n+1:] == l.Value {
			return true
		}
	}
	return false
}

// selected yields the records whose labels match.
func (s *state) selected(sel labels.Selector) iter.Seq[*Record] {
	if sel == nil || sel.Empty() {
		return s.all()
	}
	match := func(sh *shape) bool { return sel.Matches(&sh.labels) }
	if k, v, ok := oneValue(sel); ok {
		return s.faceted(byLabel, k, v, match)
	}
	return s.where(match)
}

// having yields the groups of one facet; ok is false while there are no facets of that kind.
func (s *state) having(kind facetKind, key, value string) (_ iter.Seq[*group], ok bool) {
	x := s.facets[kind]
	if x == nil || x.building {
		return nil, false
	}
	return func(yield func(*group) bool) {
		f, ok := x.sets.Find(x.facet(key, value))
		if !ok {
			return
		}
		for sh := range f.shapes.All() {
			if g, ok := s.groups.Find(&group{shape: sh}); ok && !yield(g) {
				return
			}
		}
	}, true
}

// oneValue returns a label that every match of a selector has.
func oneValue(sel labels.Selector) (key, value string, ok bool) {
	reqs, selectable := sel.Requirements()
	if !selectable {
		return "", "", false
	}
	for _, r := range reqs {
		if op := r.Operator(); op != selection.Equals && op != selection.DoubleEquals && op != selection.In {
			continue
		}
		if values := r.ValuesUnsorted(); len(values) == 1 {
			return r.Key(), values[0], true
		}
	}
	return "", "", false
}

// index returns the index of a definition.
func (s *state) index(def *indexDef) *index {
	i := slices.IndexFunc(s.indexes, func(x *index) bool { return x.def == def })
	return s.indexes[i]
}

// root is the state that readers load; all of it belongs to one version.
type root struct {
	base   *state // as the server reported it
	merged *state // with own writes laid over it
	seq    uint64 // of the change log
}
