package store

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/fairlead-io/fairlead/internal/trie"
)

const (
	// minListed is the smallest bucket that is listed: looking up fewer objects costs little.
	minListed = 32
	// maxListed bounds the records in all lists of a store. A list takes 8 bytes for each.
	maxListed = 1 << 16
)

// bucketList is the records of one version of a bucket, in the order of the bucket. It spares readers the lookup of
// each object. Only buckets that are read have one. A change of an object in a bucket makes a new version of the
// bucket, so a list is right for every state that has its bucket.
type bucketList struct {
	records atomic.Pointer[[]*Record] // nil: not filled yet, or dropped
	over    bool                      // the bucket has been replaced; guarded by bucketLists.mu
}

// bucketLists bounds the lists of a store. The oldest lists are dropped first. It holds lists weakly, so that they end
// with their buckets.
type bucketLists struct {
	mu     sync.Mutex // a leaf
	filled []filledList
	size   int // records in filled
}

type filledList struct {
	list weak.Pointer[bucketList]
	size int
}

// fill keeps the records of a list, unless its bucket has been replaced.
func (b *bucketLists) fill(l *bucketList, records []*Record) {
	if len(records) > maxListed {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.over || l.records.Load() != nil {
		return
	}
	l.records.Store(&records)
	b.filled = append(b.filled, filledList{weak.Make(l), len(records)})
	for b.size += len(records); b.size > maxListed; {
		b.dropLocked(0)
	}
}

// replace drops a list whose bucket is replaced. It returns the list of the next version, which is nil if no reader has
// used this one.
func (b *bucketLists) replace(l *bucketList) *bucketList {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.over = true
	self := weak.Make(l)
	at := slices.IndexFunc(b.filled, func(f filledList) bool { return f.list == self })
	if at < 0 {
		return nil
	}
	b.dropLocked(at)
	return &bucketList{}
}

// dropLocked drops the list at a position. The caller holds b.mu.
func (b *bucketLists) dropLocked(at int) {
	f := b.filled[at]
	if l := f.list.Value(); l != nil {
		l.records.Store(nil)
	}
	b.size -= f.size
	b.filled = slices.Delete(b.filled, at, at+1)
}

// listed returns the records of a state under a value of a user-defined index.
func (v Snapshot) listed(x *index, value string) iter.Seq[*Record] {
	b, ok := x.find(value)
	if !ok {
		return func(func(*Record) bool) {}
	}
	return func(yield func(*Record) bool) {
		if b.list == nil {
			if b.ids.Len() >= minListed {
				v.store.wantList(x.def, value)
			}
			v.state.lookupAll(b, yield)
			return
		}
		if records := b.list.records.Load(); records != nil {
			for _, r := range *records {
				if !yield(r) {
					return
				}
			}
			return
		}
		records, all := make([]*Record, 0, b.ids.Len()), true
		v.state.lookupAll(b, func(r *Record) bool {
			records = append(records, r)
			all = yield(r)
			return all
		})
		if all {
			x.def.lists.fill(b.list, records)
		}
	}
}

// wantList makes the present version of a bucket have a list, which the next reader fills. It does nothing while a
// writer is at work, since readers do not wait for writers.
func (r *reader) wantList(def *indexDef, value string) {
	if !r.pub.mu.TryLock() {
		return
	}
	defer r.pub.unlock()
	r.pub.editBoth(func(s *state) {
		for _, x := range s.indexes {
			if x.def == def {
				x.wantList(value)
			}
		}
	})
}

// wantList gives a bucket a list. It changes x, which the caller has copied.
func (x *index) wantList(value string) {
	had, ok := x.find(value)
	if !ok || had.list != nil {
		return
	}
	b := *had
	b.list = &bucketList{}
	x.buckets, _, _ = x.buckets.Set(nil, &b)
	x.lists++
}

// touch makes new versions of the buckets with a list. It is for a record whose values stay the same.
func (x *index) touch(e *trie.Edit, values []string) {
	if x.lists == 0 {
		return
	}
	for _, value := range values {
		if b, ok := x.find(value); ok && b.list != nil {
			x.buckets, _, _ = x.buckets.Set(e, x.bucket(value))
		}
	}
}
