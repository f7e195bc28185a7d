package apiserver

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// store is the storage of the server: one counter, and for each resource the live objects and the log of revisions. One
// lock guards all of it; onChange is the only user function that is called under the lock.
type store struct {
	version  versioner
	onChange func(Change)
	strict   bool // Options.Strict

	mu        sync.RWMutex
	rev       uint64 // revision of the last write
	compacted uint64 // revisions below this one cannot be read
	uids      uint64 // never goes back, unlike rev
	tables    map[schema.GroupVersionResource]*table
	sorted    atomic.Pointer[[]Resource] // those that are served; nil after a change, until they are read
	crds      *definitions               // nil: definitions are objects without effect
}

// table is one resource. The versions of a custom resource share their rows. store.mu guards served.
type table struct {
	res    Resource
	typed  bool
	prefix string // of each encoded object: {"kind":…,"apiVersion":…,
	custom *customTable
	strict bool // a built-in kind with defaults and rules

	allocated atomic.Uint32 // addresses and ports of services

	served bool
	*rows
}

// rows are the objects of a resource. store.mu guards all fields.
type rows struct {
	mixed   bool // some objects are in the form of another table
	live    map[string]*object
	keys    []string // of live, sorted
	log     []*revision
	trimmed uint64        // revision of the newest compacted log entry
	changed chan struct{} // closed and replaced at each write; watches wait for it
	snaps   []*snapshot   // recently listed, newest last
}

// revision is one write. cur is the new state; for a delete it is the last state with the version of the deletion.
type revision struct {
	rev       uint64
	typ       watch.EventType
	cur, prev *object

	leftOnce sync.Once
	left     *object
}

// snapshot is the sorted content of a table at one revision.
type snapshot struct {
	rev     uint64
	objects []*object
}

func newStore(v versioner) *store {
	return &store{version: v, rev: 1, tables: map[schema.GroupVersionResource]*table{}}
}

// objectKey returns a key that sorts like etcd: by namespace, then name.
func objectKey(namespace, name string) string { return namespace + "/" + name }

func (st *store) register(r Resource) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.sorted.Store(nil)
	if t := st.tables[r.GVR()]; t != nil {
		t.served = true
		return
	}
	t := newTable(r, newRows())
	t.strict = st.strict && t.typed
	st.tables[r.GVR()] = t
}

func newTable(r Resource, objects *rows) *table {
	return &table{
		res: r, typed: r.typed(), served: true, rows: objects,
		prefix: fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, r.Kind, r.apiVersion()),
	}
}

func newRows() *rows { return &rows{live: map[string]*object{}, changed: make(chan struct{})} }

// withdraw stops serving a resource and reports whether it was served.
func (st *store) withdraw(gvr schema.GroupVersionResource) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	t := st.tables[gvr]
	if t == nil || !t.served {
		return false
	}
	t.served = false
	st.sorted.Store(nil)
	t.wake()
	return true
}

func (st *store) table(gvr schema.GroupVersionResource) *table {
	st.mu.RLock()
	defer st.mu.RUnlock()
	if t := st.tables[gvr]; t != nil && t.served {
		return t
	}
	return nil
}

// served returns the served resources in a fixed order. The caller must not change the slice.
func (st *store) served() []Resource {
	if known := st.sorted.Load(); known != nil {
		return *known
	}
	st.mu.RLock()
	defer st.mu.RUnlock()
	var out []Resource
	for _, t := range st.tables {
		if t.served {
			out = append(out, t.res)
		}
	}
	slices.SortFunc(out, func(a, b Resource) int {
		return strings.Compare(a.Group+"/"+a.Version+"/"+a.Resource, b.Group+"/"+b.Version+"/"+b.Resource)
	})
	st.sorted.Store(&out) // under the lock: no change is missed
	return out
}

// builtIn reports whether a group and version has kinds that client-go knows.
func (st *store) builtIn(group, version string) bool {
	for _, r := range st.served() {
		if r.Group == group && r.Version == version && r.typed() {
			return true
		}
	}
	return false
}

func (st *store) current() uint64 {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return st.rev
}

func (st *store) get(t *table, key string) *object {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return t.live[key].as(t)
}

// commit stores one write if base is still the live object of the key (nil: no object). build gets the new revision and
// returns the object, for a delete its last state. commit returns nil if base is not live.
func (st *store) commit(
	t *table, key string, typ watch.EventType, base *object, build func(rev uint64) *object,
) *object {
	st.mu.Lock()
	defer st.mu.Unlock()
	if base = base.stored(); t.live[key] != base {
		return nil
	}
	return st.write(t, key, typ, base, build)
}

// write stores one write. The caller holds the lock.
func (st *store) write(
	t *table, key string, typ watch.EventType, base *object, build func(rev uint64) *object,
) *object {
	st.rev++
	obj := build(st.rev)
	r := &revision{rev: st.rev, typ: typ, cur: obj, prev: base}
	t.append(r, key)
	st.report(r)
	if st.crds != nil {
		st.crds.written(t, r)
	}
	return obj
}

func (t *rows) append(r *revision, key string) {
	switch r.typ {
	case watch.Deleted:
		delete(t.live, key)
		if i, ok := slices.BinarySearch(t.keys, key); ok {
			t.keys = slices.Delete(t.keys, i, i+1)
		}
	default:
		if _, ok := t.live[key]; !ok {
			i, _ := slices.BinarySearch(t.keys, key)
			t.keys = slices.Insert(t.keys, i, key)
		}
		t.live[key] = r.cur
	}
	t.log = append(t.log, r)
	t.wake()
}

func (t *rows) wake() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// lastRev returns the revision of the newest write to the table.
func (t *rows) lastRev() uint64 {
	if n := len(t.log); n > 0 {
		return t.log[n-1].rev
	}
	return t.trimmed
}

// after returns the index of the first log entry newer than rev.
func (t *rows) after(rev uint64) int {
	return sort.Search(len(t.log), func(i int) bool { return t.log[i].rev > rev })
}

// snapshotAt returns the content at rev, or the present content if rev is 0, and its revision. It returns false if rev
// was compacted. The caller must handle future revisions.
func (st *store) snapshotAt(t *table, rev uint64) (objects []*object, at uint64, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	defer func() { objects = t.asThis(objects) }()
	if rev == 0 {
		rev = st.rev
	}
	if rev < st.compacted {
		return nil, rev, false
	}
	effective := min(rev, t.lastRev())
	for _, s := range t.snaps {
		if s.rev == effective {
			return s.objects, rev, true
		}
	}
	undo := map[string]*object{} // key → state at rev, nil if none
	for i := len(t.log) - 1; i >= 0 && t.log[i].rev > rev; i-- {
		undo[t.log[i].cur.key()] = t.log[i].prev
	}
	objects = make([]*object, 0, len(t.keys)+len(undo))
	for _, k := range t.keys {
		if old, changed := undo[k]; !changed {
			objects = append(objects, t.live[k])
		} else {
			if old != nil {
				objects = append(objects, old)
			}
			delete(undo, k)
		}
	}
	if len(undo) > 0 { // objects that were deleted later
		for _, old := range undo {
			if old != nil {
				objects = append(objects, old)
			}
		}
		slices.SortFunc(objects, func(a, b *object) int { return strings.Compare(a.key(), b.key()) })
	}
	const keep = 8
	if len(t.snaps) == keep {
		t.snaps = slices.Delete(t.snaps, 0, 1)
	}
	t.snaps = append(t.snaps, &snapshot{rev: effective, objects: objects})
	return objects, rev, true
}

// eventsAfter returns the writes to t after rev, the present revision, and the channel that the next write closes. ok
// is false if some of these writes were compacted.
func (st *store) eventsAfter(t *table, rev uint64) (events []*revision, now uint64, changed <-chan struct{}, ok bool) {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return t.log[t.after(rev):len(t.log):len(t.log)], st.rev, t.changed, rev >= t.trimmed
}

func (st *store) stillServed(t *table) bool {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return t.served
}

// compact removes the history before rev. The state at rev stays readable.
func (st *store) compact(rev uint64) {
	st.mu.Lock()
	defer st.mu.Unlock()
	rev = min(rev, st.rev)
	if rev <= st.compacted {
		return
	}
	st.compacted = rev
	for _, t := range st.tables {
		if i := t.after(rev); i > 0 {
			t.trimmed = t.log[i-1].rev
			t.log = slices.Clone(t.log[i:])
		}
		t.snaps = slices.DeleteFunc(t.snaps, func(s *snapshot) bool { return s.rev < t.trimmed })
	}
}

// rollback restores the state at rev and the counter, like a restore of etcd from a backup.
func (st *store) rollback(rev uint64) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if rev > st.rev || rev < max(st.compacted, 1) {
		return fmt.Errorf("cannot roll back to revision %d: the history reaches from %d to %d", rev, max(st.compacted, 1),
			st.rev)
	}
	for _, t := range st.tables {
		first := t.after(rev)
		for i := len(t.log) - 1; i >= first; i-- {
			if key := t.log[i].cur.key(); t.log[i].prev == nil {
				delete(t.live, key)
			} else {
				t.live[key] = t.log[i].prev
			}
		}
		if first < len(t.log) {
			t.log = slices.Clone(t.log[:first])
			t.keys = t.keys[:0:0]
			for k := range t.live {
				t.keys = append(t.keys, k)
			}
			slices.Sort(t.keys)
		}
		t.snaps = nil
		t.wake()
	}
	st.rev = rev
	if st.crds != nil {
		st.crds.restore()
	}
	return nil
}

func (st *store) compactedAt() uint64 {
	st.mu.RLock()
	defer st.mu.RUnlock()
	return st.compacted
}
