package client

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client/internal/pending"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/internal/source"
)

// stores finds the stores that can answer a read, and reads from them. It is constant.
type stores struct {
	cache *cache.Cache                                   // may be nil
	apart map[schema.GroupVersionResource][]*cache.Store // Options.Stores
}

func newStores(c *cache.Cache, apart []*cache.Store) stores {
	s := stores{cache: c, apart: map[schema.GroupVersionResource][]*cache.Store{}}
	for _, st := range apart {
		resource := st.Options().Resource
		s.apart[resource] = append(s.apart[resource], st)
	}
	return s
}

// of returns all stores of a kind as a shared slice. Stores without a selector come first.
func (s *stores) of(k *kind) []*cache.Store {
	if own := s.apart[k.gvr]; len(own) > 0 {
		return own
	}
	if s.cache == nil {
		return nil
	}
	return k.found.In(s.cache, k.gvr)
}

func (s *stores) empty() bool { return s.cache == nil && len(s.apart) == 0 }

// all returns all stores of all kinds.
func (s *stores) all() []*cache.Store {
	all := s.cache.Stores(schema.GroupVersionResource{})
	for _, own := range s.apart {
		all = append(all, own...)
	}
	return all
}

// written returns all stores that a write of a resource affects, including those of its other versions.
func (s *stores) written(resource schema.GroupVersionResource) (stores []*cache.Store) {
	for of, own := range s.apart {
		if of.GroupResource() == resource.GroupResource() {
			stores = append(stores, own...)
		}
	}
	if s.cache == nil {
		return stores
	}
	if len(stores) == 0 {
		return inCache(s.cache, resource)
	}
	for _, st := range inCache(s.cache, resource) { // reads do not use these stores, but writes update them
		if !slices.Contains(stores, st) {
			stores = append(stores, st)
		}
	}
	return stores
}

// inCache returns all stores of a resource in the cache, in all its versions. For events it includes both API groups.
func inCache(c *cache.Cache, resource schema.GroupVersionResource) []*cache.Store {
	of := resource.GroupResource()
	stores := c.LookupAll(of)
	if of.Resource == "events" && (of.Group == "" || of.Group == "events.k8s.io") {
		twin := map[string]string{"": "events.k8s.io", "events.k8s.io": ""}[of.Group]
		stores = append(stores, c.LookupAll(schema.GroupResource{Group: twin, Resource: of.Resource})...)
	}
	return stores
}

// hasContent reports whether a store holds the requested content: whole objects, or only metadata.
func hasContent(st *cache.Store, metadata bool) bool {
	return metadata || !st.Options().Content.Metadata
}

// isMetadata reports whether obj holds only the metadata of objects.
func isMetadata(obj any) bool {
	switch obj.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return true
	}
	return false
}

// complete returns the first store of a kind if it holds all objects of its namespaces, perhaps only their metadata;
// else nil.
func (s *stores) complete(k *kind) *cache.Store {
	if stores := s.of(k); len(stores) > 0 && stores[0].Complete() {
		return stores[0]
	}
	return nil
}

// covering returns a store that currently holds all objects of a namespace; nil if there is none.
func (s *stores) covering(k *kind, namespace string) *cache.Store {
	for _, st := range s.of(k) {
		if selectsAll(st) && st.Covered(namespace) {
			return st
		}
	}
	return nil
}

// knows reports whether an object that a store lacks is absent, for a namespace ("": all namespaces).
func knows(st *cache.Store, namespace string) bool {
	for _, scope := range st.Statuses() {
		if scope.Namespace == "" || scope.Namespace == namespace {
			return scope.Synced
		}
	}
	return false
}

// find looks up an object, or its metadata, in the stores. sure is false if the server must be asked. A store with a
// label selector can return an object but cannot prove its absence. A store of metadata can prove absence. A store
// whose selector only the server can evaluate may not show the client's own writes.
func (s *stores) find(k *kind, key Key, metadata bool) (r *cache.Record, sure bool) {
	stores := s.of(k)
	for i, st := range stores {
		if st.Overdue(key) {
			return nil, false
		}
		covered := st.Covered(key.Namespace)
		r, ok := st.Get(key)
		switch {
		case ok && !hasContent(st, metadata):
			continue
		case ok && (st.Complete() || st.Decides()):
			return newest(key, metadata, r, st, stores[i+1:])
		}
		if covered && selectsAll(st) && knows(st, key.Namespace) && st.Covered(key.Namespace) {
			return newest(key, metadata, nil, st, stores[i+1:])
		}
	}
	return nil, false
}

// newest checks whether another store has a newer state than the store from, which returned r (nil for an absent
// object). A caller that has read the newer state must not read an older one. sure is false if the server must be
// asked.
func newest(key Key, metadata bool, r *cache.Record, from *cache.Store, others []*cache.Store) (*cache.Record, bool) {
	for _, st := range others {
		other, ok := st.Get(key)
		switch {
		case ok && hasContent(st, metadata) && st.Decides():
			ahead := r == nil && !pending.Unordered(from) && !from.Covers(key.Namespace, other.Version()) ||
				r != nil && resourceversion.Older(r.Version(), other.Version())
			if ahead {
				r, from = other, st
			}
		case !ok && r != nil && st.Selects(r) && !st.Lacks(key.Namespace, r.UID()) &&
			st.Covers(key.Namespace, r.Version()):
			return nil, false // deleted, or no longer selected
		}
	}
	return r, true
}

// selectsAll reports whether a store holds all objects of its scopes and slots.
func selectsAll(st *cache.Store) bool {
	o := st.Options()
	return o.LabelSelector == "" && o.FieldSelector == ""
}

// byLabels reports whether a store holds all objects of its scopes and slots, or all that match its label selector.
func byLabels(st *cache.Store) bool { return st.Options().FieldSelector == "" }

// lookup finds an object in the stores. from is false if the server must be asked. If the stores know that the object
// is absent, lookup returns an error.
func (s *stores) lookup(k *kind, key Key, metadata bool) (r *cache.Record, from bool, err error) {
	if !k.namespaced {
		key.Namespace = ""
	}
	if key.Name == "" || k.namespaced && key.Namespace == "" { // not a valid name of an object
		return nil, false, k.fail("get", key, errNoName)
	}
	r, sure := s.find(k, key, metadata)
	if sure && r == nil {
		return nil, true, k.absent(key)
	}
	return r, sure, nil
}

// forList returns the first store that holds all objects that a list selects and has the requested index; nil if there
// is none. bare is a store that lacks only the index.
func (s *stores) forList(k *kind, o *readOptions) (st, bare *cache.Store) {
	if o.live || !o.fromStore() {
		return nil, nil
	}
	for _, st := range s.of(k) {
		if !s.spans(st, o) || !o.within(st) || !hasContent(st, o.metadata) {
			continue
		}
		if o.index == "" || st.Snapshot().HasIndex(o.index) {
			return st, nil
		}
		bare = st
	}
	return nil, bare
}

// spans reports whether a store currently knows all objects in the namespaces of a list. For a list of all namespaces
// by an index these are the namespaces of the program: no other store has the objects of another namespace.
func (s *stores) spans(st *cache.Store, o *readOptions) bool {
	holds := func(namespace string) bool { return knows(st, namespace) && st.Covered(namespace) }
	if holds(o.namespace) {
		return true
	}
	if o.index == "" || o.namespace != "" {
		return false
	}
	own := s.cache.Namespaces()
	return len(own) > 0 && !slices.ContainsFunc(own, func(namespace string) bool { return !holds(namespace) })
}

// within reports whether a store's selectors include all requested objects. For example, a store with app=web includes
// the objects with app=web and tier=db.
func (o *readOptions) within(st *cache.Store) bool {
	sel, err := labels.Parse(st.Options().LabelSelector)
	if err != nil || !byLabels(st) {
		return false
	}
	needs, _ := sel.Requirements()
	asked, _ := o.labels.Requirements()
	for _, need := range needs {
		if !slices.ContainsFunc(asked, need.Equal) {
			return false
		}
	}
	return true
}

// snapshot returns the records that a list selects, from one version of the store; nil if the server must be asked.
func (s *stores) snapshot(k *kind, o *readOptions) (iter.Seq[*cache.Record], string, error) {
	if o.err != nil {
		return nil, "", o.err
	}
	st, bare := s.forList(k, o)
	switch {
	case st == nil && o.index != "": // the server has no such index
		return nil, "", s.noIndex(k, o, bare)
	case st == nil || len(st.OverlayStats().Overdue) > 0 && o.index == "":
		return nil, "", nil
	}
	version := st.Version()
	in := st.Snapshot()
	if !st.Covered(o.namespace) && !s.spans(st, o) { // the store has lost the slot since
		if o.index != "" {
			return nil, "", s.noIndex(k, o, nil)
		}
		return nil, "", nil
	}
	var all iter.Seq[*cache.Record]
	switch {
	case o.index != "":
		all = in.Index(o.index, o.indexValue)
	case o.namespace != "":
		all = in.InNamespace(o.namespace)
	default:
		all = in.All()
	}
	return func(yield func(*cache.Record) bool) {
		for r := range all {
			if (o.namespace == "" || r.Namespace() == o.namespace) && (o.labels.Empty() || o.labels.Matches(r.Labels())) &&
				matchesName(o.fields, r) && !yield(r) {
				return
			}
		}
	}, version, nil
}

// put stores an object that the server answered, in JSON.
func (s *stores) put(k *kind, raw []byte) error {
	for _, st := range s.of(k) {
		if _, err := st.Put(source.JSON, raw); err != nil {
			return err
		}
	}
	return nil
}

// noIndex returns the error for a list by an index that cannot be answered.
func (s *stores) noIndex(k *kind, o *readOptions, bare *cache.Store) error {
	if bare != nil {
		return fmt.Errorf(
			"%w: %q; %s has the indexes %s; fairlead.IndexField declares one, and cache.IndexBy adds one to the store of "+
				"observe.Known or of Cache.Acquire",
			errNoIndex, o.index, k.gvk.Kind, strings.Join(bare.Snapshot().Indexes(), ", "),
		)
	}
	why := "the kind is not watched: fairlead.IndexField, Owns, Watches, observe.Known or Cache.Acquire would"
	var kept []string
	for _, st := range s.of(k) {
		kept = append(kept, extent(st))
	}
	switch {
	case o.live:
		why = "the server has none, and Live asks it"
	case !o.fromStore():
		why = fmt.Sprintf("the store cannot tell which fields are %s", o.fields)
	case len(kept) > 0:
		why = "of the kind the cache holds only " + strings.Join(kept, ", and ")
	}
	return fmt.Errorf("index %q is a part of the cache: %w: %s", o.index, ErrNotWatched, why)
}

// extent describes the contents of a store, for errors.
func extent(st *cache.Store) string {
	var scopes []string
	for _, scope := range st.Statuses() {
		where := "namespace " + scope.Namespace
		if scope.Namespace == "" {
			where = "all namespaces"
		}
		if !scope.Synced {
			where += " (not listed yet)"
		}
		scopes = append(scopes, where)
	}
	o := st.Options()
	text := strings.Join(scopes, ", ")
	if o.Content.Metadata {
		text = "the metadata of " + text
	}
	for _, sel := range []struct{ what, selector string }{
		{"labels", o.LabelSelector}, {"fields", o.FieldSelector}, {"the slots of", o.Shard},
	} {
		if sel.selector != "" {
			text += " with " + sel.what + " " + sel.selector
		}
	}
	return text
}

// matchesName evaluates the field selectors that every store supports.
func matchesName(sel fields.Selector, r *cache.Record) bool {
	return sel.Empty() || sel.Matches(fields.Set{"metadata.name": r.Name(), "metadata.namespace": r.Namespace()})
}
