package store

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/pack"
	"github.com/fairlead-io/fairlead/internal/source"
)

// Store is the last known state of one resource. It is safe for concurrent use. Reads take no lock.
type Store struct {
	opt   Options
	codec // of its records, with its logger

	root    atomic.Pointer[root]
	seq     atomic.Uint64                 // number of entries of the change log
	isReady chan struct{}                 // closed when synced
	live    atomic.Pointer[source.Source] // the source, if a Cache made both
	scope   atomic.Pointer[string]        // Options.Scope, once it has changed

	buffers sync.Pool // of *buffers

	selected atomic.Pointer[watchSelector]

	mu        sync.Mutex // the writer's lock: everything below; never held while user code runs
	changes   changeLog
	defs      []*indexDef // replaced, never changed
	scopes    scopes
	cursors   []*Cursor // append-only or replaced: a copy taken under the lock may be read without it
	synced    bool
	announced bool // isReady is closed
	closed    bool
	unordered bool // an opaque version was seen: versions are only compared for equality
	marks     uint32
	overlay   overlay
	waiters   waiters
	surveyed  uint64         // surveys that have begun
	surveying sync.WaitGroup // their goroutines
	ledger    ledger
	resync    resyncTimer
	status    statusBoard
	stats     counters
}

// root is the state that readers load; all of it belongs to one version.
type root struct {
	base   *state // as the server reported it
	merged *state // with own writes laid over it
	seq    uint64 // of the change log
}

// counters count since the store was made.
type counters struct {
	applied, suppressed, commits, quarantined atomic.Int64
}

// New returns an empty store. Close it after use.
func New(opt Options) *Store {
	s := &Store{opt: opt, changes: newLog(), scopes: scopes{}, isReady: make(chan struct{})}
	s.content = opt.Content.ready(typeOf(opt.Scheme, opt.Kind))
	s.kind, s.scheme, s.onMutation, s.intern, s.logger = opt.Kind, opt.Scheme, opt.OnMutation, newInterner(), opt.Logger
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.logger = s.logger.With("resource", opt.Resource.GroupResource().String())
	s.SetSelectors(source.Selectors{Label: opt.LabelSelector, Field: opt.FieldSelector})
	s.hot.init(opt.HotBytes, opt.DetectMutation)
	s.pack = pack.New(s.bodies)
	s.buffers.New = func() any { return new(buffers) }
	s.overlay.init(opt.OverlayBound)
	s.ledger.init()
	empty := &state{}
	s.root.Store(&root{base: empty, merged: empty})
	return s
}

// Options returns the options that the store was made with.
func (s *Store) Options() Options { return s.opt }

// Complete reports whether the store was made without selectors and without Shard, so that it holds all objects of its
// scopes.
func (s *Store) Complete() bool {
	return s.opt.LabelSelector == "" && s.opt.FieldSelector == "" && s.opt.Shard == ""
}

// SetSelectors sets the selectors that the sources of the store use from now on; see source.Source.SetSelectors.
func (s *Store) SetSelectors(sel source.Selectors) {
	s.selected.Store(parseSelectors(sel, s.opt.field))
}

// Get returns the object of a key, own writes included.
func (s *Store) Get(k Key) (*Record, bool) {
	return s.root.Load().merged.get(s.intern.hashKey(k.Namespace, k.Name), k)
}

// Len returns the number of objects, own writes included.
func (s *Store) Len() int { return s.root.Load().merged.objects.Len() }

// Close ends the subscriptions and pending waits, and waits for the store's background work. Reads still work after it.
func (s *Store) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	cursors := s.cursors
	s.cursors = nil
	s.waiters.end(ErrClosed, func(*waiter) bool { return true })
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

// Flush packs all objects now. Otherwise that happens in the background, in rounds.
func (s *Store) Flush() { s.pack.Flush() }

// bodies yields the encoded objects that are current.
func (s *Store) bodies(yield func(*pack.Item) bool) {
	for r := range s.root.Load().base.all() {
		if !yield(&r.body) {
			return
		}
	}
}
