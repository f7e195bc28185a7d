package store

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/trie"
)

// IndexFunc returns the values under which a record is found. It must depend on the record alone. A record for which it
// fails or panics is missing from that index; Snapshot.IndexErrors reports it.
type IndexFunc func(*Record) ([]string, error)

// indexDef is the definition of a user-defined index.
type indexDef struct {
	name string
	fn   IndexFunc
	seed maphash.Seed
	// lists bounds the lists of all indexes of the store.
	lists *bucketLists
}

// indexValues is the result of an index function for a record.
type indexValues struct {
	values []string
	err    error
}

// eval calls the index function, which is user code. The caller holds no lock.
func (d *indexDef) eval(r *Record) (v indexValues) {
	if p := protect.Call(func() { v.values, v.err = d.fn(r) }); p != nil {
		v.err = fmt.Errorf("index function panicked: %v", p.Value)
	}
	if v.err != nil {
		return indexValues{err: fmt.Errorf("cannot index %s by %s: %w", r.Key(), d.name, v.err)}
	}
	if len(v.values) > 1 {
		v.values = slices.Clone(v.values)
		slices.Sort(v.values)
		v.values = slices.Compact(v.values)
	}
	return v
}

// index is one version of a user-defined index.
type index struct {
	def      *indexDef
	buckets  trie.Map[*bucket, bucketKeys]   // by value
	entries  trie.Map[*indexed, indexedKeys] // by object, for removal
	lists    int                             // buckets with a list
	building bool                            // it lacks objects that have not changed since; reads do not use it yet
}

type bucket struct {
	value string
	hash  uint64
	ids   trie.Map[*ident, identKeys]
	list  *bucketList // nil: no reader has asked for it
}

// bucketKeys compares buckets by their value.
type bucketKeys struct{}

func (bucketKeys) Hash(b *bucket) uint64  { return b.hash }
func (bucketKeys) Same(a, b *bucket) bool { return a.value == b.value }

type indexed struct {
	id *ident
	indexValues
	one [1]string // holds values if there is just one
}

// indexedKeys compares entries by the key of their object.
type indexedKeys struct{}

func (indexedKeys) Hash(x *indexed) uint64  { return x.id.hash }
func (indexedKeys) Same(a, b *indexed) bool { return a.id.sameKey(b.id) }

// set replaces the values of an object.
func (x *index) set(e *trie.Edit, id *ident, v indexValues) {
	old, had := x.entries.Find(&indexed{id: id})
	if had && old.id == id && old.err == nil && v.err == nil && slices.Equal(old.values, v.values) {
		x.touch(e, old.values)
		return
	}
	if had {
		for _, v := range old.values {
			b := x.bucket(v)
			b.ids, _, _ = b.ids.Delete(e, id)
			if b.ids.Len() == 0 {
				x.buckets, _, _ = x.buckets.Delete(e, b)
				if b.list != nil {
					x.lists--
				}
			} else {
				x.buckets, _, _ = x.buckets.Set(e, b)
			}
		}
	}
	if len(v.values) == 0 && v.err == nil {
		if had {
			x.entries, _, _ = x.entries.Delete(e, old)
		}
		return
	}
	entry := &indexed{id: id, indexValues: indexValues{err: v.err}}
	entry.values = entry.one[:0]
	for _, value := range v.values {
		b := x.bucket(value)
		b.ids, _, _ = b.ids.Set(e, id)
		x.buckets, _, _ = x.buckets.Set(e, b)
		entry.values = append(entry.values, b.value)
	}
	x.entries, _, _ = x.entries.Set(e, entry)
}

// bucket returns a copy of the bucket of a value, which may be changed. The list of the bucket is replaced.
func (x *index) bucket(value string) *bucket {
	had, ok := x.find(value)
	if !ok {
		return &bucket{value: value, hash: maphash.String(x.def.seed, value)}
	}
	b := *had
	if b.list != nil {
		if b.list = x.def.lists.replace(b.list); b.list == nil {
			x.lists--
		}
	}
	return &b
}

// find returns the bucket of a value.
func (x *index) find(value string) (*bucket, bool) {
	return x.buckets.Get(maphash.String(x.def.seed, value), func(b *bucket) bool { return b.value == value })
}

// staged is a record that is about to be published, with its index values. They are computed outside of any lock, by
// user code.
type staged struct {
	rec    *Record
	values []indexValues // for each index of defs
	defs   []*indexDef
	twin   bool // same uid and version as the known record, but other content: only an epoch makes such
}

// stage calls the index functions for a record. The caller holds no lock.
func stage(r *Record, defs []*indexDef) staged {
	st := staged{rec: r, defs: defs}
	if len(defs) > 0 {
		st.values = make([]indexValues, len(defs))
		for i, d := range defs {
			st.values[i] = d.eval(r)
		}
	}
	return st
}

func (st *staged) valuesOf(d *indexDef) indexValues {
	for i, have := range st.defs {
		if have == d {
			return st.values[i]
		}
	}
	return indexValues{}
}

// without returns a copy of st without the values of one index.
func (st staged) without(d *indexDef) staged {
	if i := slices.Index(st.defs, d); i >= 0 {
		st.defs = slices.Delete(slices.Clone(st.defs), i, i+1)
		st.values = slices.Delete(slices.Clone(st.values), i, i+1)
	}
	return st
}

func sameDefs(a, b []*indexDef) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
