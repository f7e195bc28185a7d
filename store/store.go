package store

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/source"
)

// Options configure a Store. The zero value works for reads of records; typed views need a Scheme or fall back to JSON.
type Options struct {
	Resource   schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Namespaced bool
	// Scheme decodes typed views of protobuf; JSON is decoded without it.
	Scheme *runtime.Scheme
	// LabelSelector and FieldSelector are those of the watch; own writes that do not match are not laid over the store.
	LabelSelector string
	FieldSelector string
	// ShardSelector is that of the watch. It cannot be evaluated here, so own writes are settled by asking the server.
	ShardSelector string
	// Scope tells this store from others of the same resource and selectors, in metrics: the namespaces, the encoding.
	Scope string
	// HotBytes bounds the decoded objects that survive garbage collection without being used; 0: 32 MiB, negative: none.
	HotBytes int64
	// DetectMutation checks, at a cost, that nobody changes a shared decoded object; see Store.Mutations.
	DetectMutation bool
	// OnMutation is called for each one that is found; nil: it is logged.
	OnMutation func(Key, error)
	// Probe returns the server's current version of the resource, for Barrier in a store that is not filled by a source.Source.
	Probe Probe
	// OverlayBound is for how long an own write may be laid over before that is reported; 0: one minute.
	OverlayBound time.Duration
	Logger       *slog.Logger
}

// Store is the last known state of one resource. It is safe for concurrent use. Reads take no lock.
type Store struct {
	opt      Options
	selector labels.Selector
	fields   fieldSelector
	logger   *slog.Logger
	intern   *interner
	hot      hotSet
	pack     *pack.Packer
	decoders decoders

	root    atomic.Pointer[root]
	seq     atomic.Uint64                 // entries of the change log
	isReady chan struct{}                 // closed when synced
	live    atomic.Pointer[source.Source] // what fills the store, if a Cache made both
	scope   atomic.Pointer[string]        // Options.Scope, once it has changed

	buffers sync.Pool // of *buffers

	mu        sync.Mutex // the writer's lock: everything below; never held while user code runs
	changes   changeLog
	defs      []*indexDef // replaced, never changed
	scopes    map[string]*scope
	cursors   []*Cursor // grows at its end, else replaced: who has copied it under the lock may go through it without
	synced    bool
	announced bool // isReady is closed
	closed    bool
	unordered bool // a version that is no number was seen: versions are only compared for equality
	marks     uint32
	overlay   overlay
	waiters   []*waiter
	surveyed  uint64         // surveys that have begun
	surveying sync.WaitGroup // their goroutines
	ledger    ledger
	resync    resyncTimer
	status    statusBoard
	stats     counters
}

// root is what readers load: all that belongs to one version.
type root struct {
	base   *state // what the server has told
	merged *state // with own writes laid over it
	seq    uint64 // of the change log
}

// New returns an empty store. Close it when it is not needed any more.
func New(opt Options) *Store {
	s := &Store{opt: opt, intern: newInterner(), changes: newLog(), scopes: map[string]*scope{}, isReady: make(chan struct{}), logger: opt.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.logger = s.logger.With("resource", opt.Resource.GroupResource().String())
	s.selector, s.fields = parseSelectors(opt)
	s.hot.init(opt)
	s.pack = pack.New(s.bodies)
	s.buffers.New = func() any { return new(buffers) }
	s.overlay.init()
	s.ledger.init()
	empty := &state{}
	s.root.Store(&root{base: empty, merged: empty})
	return s
}

// Options returns what the store was made with.
func (s *Store) Options() Options { return s.opt }

// Get returns the object of a key, own writes included.
func (s *Store) Get(k Key) (*Record, bool) {
	return s.root.Load().merged.get(s.intern.hashKey(k.Namespace, k.Name), k)
}

// Len returns the number of objects, own writes included.
func (s *Store) Len() int { return s.root.Load().merged.objects.Len() }

// Close ends the subscriptions and pending waits, and waits for what the store does in the background. Reads go on to work.
func (s *Store) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	cursors := s.cursors
	s.cursors = nil
	s.endWaits(ErrClosed, func(*waiter) bool { return true })
	for _, sc := range s.scopes {
		sc.endSurveys()
	}
	s.resync.stop()
	s.status.close()
	s.mu.Unlock()
	for _, c := range cursors {
		c.closed.Store(true)
		c.signal()
	}
	s.surveying.Wait()
	s.resync.wait()
	s.pack.Close()
}

func (s *Store) unsubscribe(c *Cursor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.cursors, c); i >= 0 {
		s.cursors = slices.Delete(slices.Clone(s.cursors), i, i+1)
	}
}

// publish makes next visible, then appends the changes that led to it to the log. The caller holds s.mu, and calls the
// returned function after it has released it.
func (s *Store) publish(next root, batch []change) (wake func()) {
	next.seq = s.changes.seq + uint64(len(batch))
	s.seq.Store(next.seq) // first: no reader is ever ahead of it
	s.root.Store(&next)
	if s.synced && !s.announced { // who waits for it finds what was listed
		s.announced = true
		close(s.isReady)
	}
	if len(batch) == 0 {
		return func() {}
	}
	if len(s.cursors) == 0 {
		s.changes.seq = next.seq // nobody reads it; who comes later starts at the end
		return func() {}
	}
	before := s.changes.seq / chunkLen
	s.changes.append(batch)
	cursors := s.cursors
	if s.changes.seq/chunkLen != before {
		for _, c := range cursors {
			if read := c.read.Load(); s.changes.seq-read > maxLag+uint64(len(batch)) {
				c.fold(maxLag / 2)
			}
		}
	}
	return func() {
		for _, c := range cursors {
			c.wake()
		}
	}
}

// Sink returns what a source fills for one scope: a namespace, or "" for all. Calls for one scope come from one goroutine.
func (s *Store) Sink(namespace string) source.Sink {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scopes[namespace]
	if sc == nil {
		sc = &scope{s: s, ns: namespace}
		sc.status.Namespace = namespace
		s.scopes[namespace] = sc
	}
	return sc
}

// scopeOf returns the scope that a namespace belongs to; the caller holds s.mu.
func (s *Store) scopeOf(namespace string) *scope {
	if sc := s.scopes[namespace]; sc != nil {
		return sc
	}
	return s.scopes[""]
}

// Version returns the resource version up to which the store knows everything: of several scopes the lowest, and "" until
// each scope was listed once.
func (s *Store) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.versionLocked()
}

func (s *Store) versionLocked() string {
	var low version
	for _, sc := range s.scopes {
		if sc.version.isZero() {
			return ""
		}
		if low.isZero() || low.newer(sc.version) {
			low = sc.version
		}
	}
	return low.String()
}

// HasSynced says whether every scope that can be listed was listed once.
func (s *Store) HasSynced() bool {
	select {
	case <-s.isReady:
		return true
	default:
		return false
	}
}

// Synced returns a channel that is closed when HasSynced becomes true.
func (s *Store) Synced() <-chan struct{} { return s.isReady }

// checkSynced returns the note for the subscribers when the store has just become synced; the caller holds s.mu and
// publishes it.
func (s *Store) checkSynced() (batch []change) {
	if s.synced || len(s.scopes) == 0 {
		return nil
	}
	some := false
	for _, sc := range s.scopes {
		complete := sc.committed && !sc.resuming
		some = some || complete
		if !complete && !sc.refused() {
			return nil
		}
	}
	if !some {
		return nil
	}
	s.synced = true
	return []change{{typ: Synced, note: &note{version: s.versionLocked()}}}
}
