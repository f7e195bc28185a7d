package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// intake holds the open watches of a controller. It turns their events into keys of primaries and reasons, and passes
// these to its sink. It makes no decision about reconciliations.
//
// The pump calls step. Other methods are safe for concurrent use. The intake calls the sink and the functions of the
// user without its lock.
type intake struct {
	name      string // of the controller
	owner     string // of the writes of the controller: the stores withhold their events
	main      *watch // of the primaries
	interval  time.Duration
	cache     func() *cache.Cache
	log       *slog.Logger
	mapErrors *prometheus.CounterVec
	wake      func() // makes the pump call step; must not block
	sink      sink

	primary atomic.Pointer[openWatch] // written with mu held

	mu      sync.Mutex      // guards everything below, and openWatch.synced
	run     context.Context //nolint:containedctx // of the controller; nil unless watches may be opened
	watches []*openWatch    // replaced, not changed, since step reads it without the lock
	synced  chan struct{}   // closed when the initial objects of every declared watch have been passed on
}

// sink receives the changes of primaries, from the goroutine of step.
type sink struct {
	// changed has now, the state of the primary in the event, or nil if the event is about another object.
	changed func(k Key, why Reason, p priority, of rank, now *facts)
	deleted func(k Key, why Reason)
	left    func(k Key) // its slot belongs to another replica
}

// openWatch is an open watch: a claim on a store, and a position in its log of changes.
type openWatch struct {
	watch  *watch
	handle *cache.Handle
	drain  *store.Drainer
	main   bool
	follow *follow // the primary of Follow; nil for a declared watch
	late   bool    // opened after the first lists of the declared watches
	synced bool    // guarded by intake.mu; only step writes it, and reads it without the lock
}

// rules returns the declaration with the current functions of the user. Follow may replace it.
func (s *openWatch) rules() *watch {
	if s.follow != nil {
		return s.follow.rules()
	}
	return s.watch
}

// takeAtOnce bounds the events that are taken from one watch before the next watch has its turn.
const takeAtOnce = 256

// start permits to open watches until the context run ends or close is called.
func (in *intake) start(run context.Context) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.run = run
}

// running reports whether watches may be opened.
func (in *intake) running() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.run != nil
}

// open opens a declared watch, or with f the watch of a primary. options are applied after its own. The main watch must
// be the first one.
func (in *intake) open(w *watch, f *follow, options ...cache.Option) (*openWatch, error) {
	h, err := w.open(in.cache(), options...)
	if err != nil {
		return nil, fmt.Errorf("cannot watch %s: %w", w.name, err)
	}
	s := &openWatch{watch: w, handle: h, main: w == in.main, follow: f}
	opt := in.subscription(s)
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.run == nil || in.run.Err() != nil {
		h.Release()
		return nil, fmt.Errorf("cannot watch %s: %w", w.name, errNotRunning)
	}
	run := in.run
	s.late = in.hasSyncedLocked()
	s.drain = h.Drain(store.DrainOptions{
		SubscribeOptions: opt, Batch: takeAtOnce,
		Consume: func(events []store.Event) (more bool) { return in.take(run, s, events) },
	})
	in.watches = append(in.watches[:len(in.watches):len(in.watches)], s)
	if s.main {
		in.primary.Store(s)
	}
	in.wake()
	return s, nil
}

// subscription returns the options of a subscription to the store of s.
func (in *intake) subscription(s *openWatch) store.SubscribeOptions {
	w := s.watch
	opt := store.SubscribeOptions{Name: in.name + "/" + w.name, HoldWrites: in.owner, Wake: in.wake}
	opt.HoldDeletes = !s.main // the deletion of a primary ends what the controller remembers of it
	switch {
	case s.main:
		opt.Resync = max(in.interval, 0)
	case s.follow != nil:
		k := s.follow.primary
		opt.PrimaryOf = func(*cache.Record) (Key, bool) { return k, true }
		if s.handle.HasSynced() {
			opt.From = store.FromNow
		}
	default:
		opt.PrimaryOf = func(r *cache.Record) (Key, bool) {
			keys, err := w.keys(r, in.primaryKind())
			if err != nil || len(keys) != 1 {
				return Key{}, false
			}
			return keys[0], true
		}
	}
	if len(w.filters) > 0 || s.follow != nil {
		opt.Filter = func(r *cache.Record) bool {
			ok, err := s.rules().matches(r)
			if err != nil {
				logUserError(in.log, "the filter of a watch failed", err, "watch", w.name, "key", r.Key().String())
			}
			return ok
		}
	}
	return opt
}

// close ends all watches. The caller must call release when the stores are no longer used.
func (in *intake) close() (release func()) {
	in.mu.Lock()
	watches := in.watches
	in.run, in.watches = nil, nil
	in.primary.Store(nil)
	in.mu.Unlock()
	for _, s := range watches {
		s.drain.Close()
	}
	return func() {
		for _, s := range watches {
			s.handle.Release()
		}
	}
}

// closeOne ends a watch, unless close has ended it.
func (in *intake) closeOne(s *openWatch) {
	in.mu.Lock()
	i := slices.Index(in.watches, s)
	if i >= 0 {
		in.watches = slices.Delete(slices.Clone(in.watches), i, i+1)
	}
	in.mu.Unlock()
	if i >= 0 {
		s.drain.Close()
		s.handle.Release()
	}
}

// reads reports whether w reads the same store as the open watch s.
func (in *intake) reads(s *openWatch, w *watch) (bool, error) {
	h, err := w.open(in.cache())
	if err != nil {
		return false, fmt.Errorf("cannot watch %s: %w", w.name, err)
	}
	defer h.Release()
	return h.Store == s.handle.Store, nil
}

// primaryKind describes the reconciled kind for mappings.
func (in *intake) primaryKind() primary {
	p := primary{kind: in.main.kind}
	if s := in.primary.Load(); s != nil {
		p.namespaced = s.handle.Options().Namespaced
	}
	return p
}

// objects returns the store of the primaries, or nil if the main watch is not open.
func (in *intake) objects() *cache.Store {
	if s := in.primary.Load(); s != nil {
		return s.handle.Store
	}
	return nil
}

// uidOf returns the uid of a primary, if it exists.
func (in *intake) uidOf(k Key) (uid types.UID, exists bool) {
	st := in.objects()
	if st == nil {
		return "", false
	}
	rec, ok := st.Get(k)
	if !ok {
		return "", false
	}
	return rec.UID(), true
}

// step passes on a batch of events of each watch. It reports whether there are more.
func (in *intake) step() (more bool) {
	in.mu.Lock()
	watches := in.watches
	in.mu.Unlock()
	for _, s := range watches {
		more = s.drain.Step() || more
	}
	return more
}

// take handles a batch of events. It reports whether the controller still runs.
func (in *intake) take(run context.Context, s *openWatch, events []store.Event) (more bool) {
	for i := range events {
		if run.Err() != nil {
			return false
		}
		in.event(run, s, &events[i])
	}
	return true
}

func (in *intake) event(run context.Context, s *openWatch, e *store.Event) {
	switch e.Type {
	case store.Synced:
		in.watchSynced(s)
		if s.late && s.watch.optional && s.watch.owned { // the primaries may lack objects of this kind
			in.everyPrimary(s)
		}
		return
	case store.Epoch:
		in.log.WarnContext(run, "the history of the server was rolled back", "watch", s.watch.name, "reason", e.Reason)
		return
	case store.Left:
		if s.main {
			in.sink.left(e.Key)
		}
		return
	case store.QuarantinedObject:
		in.log.ErrorContext(run, "an object cannot be decoded", "watch", s.watch.name, "key", e.Key.String(), "error", e.Err)
		return
	case store.Modified:
		ok, err := s.rules().concerns(e.Prior, e.Object)
		if err != nil {
			logUserError(in.log, "the filter of a watch failed", err, "watch", s.watch.name, "key", e.Key.String())
		} else if !ok {
			return
		}
	}
	why := reasonOf(*e, s.watch.name)
	if s.rules().ignores(why.Type) && !(s.main && ends(e)) {
		return
	}
	p := high
	if why.Type == Initial || why.Type == Interval {
		p = low
	}
	switch {
	case s.follow != nil:
		in.sink.changed(s.follow.primary, why, high, in.rankOf(s.follow.primary), nil)
	case s.main && e.Type == store.Deleted:
		in.sink.deleted(e.Key, why)
	case s.main:
		now := factsOf(e.Object)
		in.sink.changed(e.Key, why, p, in.rank(e.Object), &now)
	case why.Type == Initial && !s.synced && !s.late: // all primaries are reconciled after all watches are listed
	default:
		in.related(s, e, why, p)
	}
}

// everyPrimary passes on all primaries, because the kind of a watch is served now.
func (in *intake) everyPrimary(s *openWatch) {
	for r := range in.objects().Snapshot().All() {
		why := Reason{Type: Initial, Source: s.watch.name, Key: r.Key(), Version: r.Version()}
		in.sink.changed(r.Key(), why, low, in.rank(r), nil)
	}
}

// ends reports whether an event is the deletion of its object, or the beginning of it.
func ends(e *store.Event) bool {
	return e.Type == store.Deleted || e.Type == store.Modified && e.Object.Deleting() && !e.Prior.Deleting()
}

// related passes on the primaries that an event of another kind concerns. It maps both the new and the previous state.
func (in *intake) related(s *openWatch, e *store.Event, why Reason, prio priority) {
	p := in.primaryKind()
	keys := map[Key]bool{}
	for _, r := range []*cache.Record{e.Object, e.Prior} {
		if r == nil {
			continue
		}
		mapped, err := s.watch.keys(r, p)
		if err != nil {
			logUserError(in.log, "cannot map an object to those that it concerns", err, "watch", s.watch.name, "key",
				e.Key.String())
			in.mapErrors.WithLabelValues(s.watch.name).Inc()
			continue
		}
		for _, k := range mapped {
			if !keys[k] {
				keys[k] = true
				in.sink.changed(k, why, prio, in.rankOf(k), nil)
			}
		}
	}
}

// rank returns the rank of a primary. It is 0 without a function of Priority, and if that fails.
func (in *intake) rank(r *cache.Record) rank {
	if in.main.rank == nil {
		return 0
	}
	n, err := guard(func() (int, error) { return in.main.rank(r) })
	if err != nil {
		logUserError(in.log, "cannot rank an object", err, "key", r.Key().String())
		return 0
	}
	return rank(cmp.Compare(n, 0))
}

// rankOf returns the rank of a primary by its key; 0 if it does not exist.
func (in *intake) rankOf(k Key) rank {
	st := in.objects()
	if in.main.rank == nil || st == nil {
		return 0
	}
	if r, ok := st.Get(k); ok {
		return in.rank(r)
	}
	return 0
}

// watchSynced records that the initial objects of a watch have been passed on.
func (in *intake) watchSynced(s *openWatch) {
	in.mu.Lock()
	defer in.mu.Unlock()
	s.synced = true
	if in.primary.Load() == nil || len(unlisted(in.watches)) > 0 { // or not all watches are open yet
		return
	}
	select {
	case <-in.synced:
	default:
		close(in.synced)
	}
}

// unlisted returns the watches that must be listed before the first reconciliation. The caller holds intake.mu.
func unlisted(watches []*openWatch) (rest []*openWatch) {
	for _, s := range watches {
		if !s.synced && s.follow == nil {
			rest = append(rest, s)
		}
	}
	return rest
}

// awaitSync waits until the sink has all initial objects. It returns false if ctx ends first. It logs the watches that
// are not listed after warnAfter, twice that time, and so on.
func (in *intake) awaitSync(ctx context.Context, warnAfter time.Duration) bool {
	defer remind(warnAfter, func(waited time.Duration) {
		for _, s := range in.snapshot().unlisted {
			in.log.WarnContext(ctx, "waits for the first list", "watch", s.watch.name, "for", waited,
				"status", strings.Join(s.handle.Unlisted(), "; "))
		}
	})()
	select {
	case <-ctx.Done():
		return false
	case <-in.synced:
		return true
	}
}

// awaitSlots waits until the declared watches show every object of the slots as of the call.
func (in *intake) awaitSlots(ctx context.Context, slots shard.Set) error {
	for _, s := range in.snapshot().watches {
		if s.follow != nil {
			continue
		}
		wait := func() error { return s.handle.WaitSlots(ctx, slots) }
		if s.handle.Options().Shard == "" { // the store already has the objects, but may be stale
			wait = func() error { return s.handle.Barrier(ctx) }
		}
		if err := wait(); err != nil {
			return fmt.Errorf("watch %s: %w", s.watch.name, err)
		}
	}
	return nil
}

// intakeState is a snapshot of an intake.
type intakeState struct {
	primary  *openWatch // nil if the main watch is not open
	watches  []*openWatch
	unlisted []*openWatch // must be listed before the first reconciliation
	synced   bool         // the sink has all initial objects
}

func (in *intake) snapshot() intakeState {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := intakeState{primary: in.primary.Load(), watches: in.watches, unlisted: unlisted(in.watches)}
	s.synced = in.hasSyncedLocked()
	return s
}

// hasSyncedLocked reports whether the initial objects of every declared watch have been passed on. The caller holds
// in.mu.
func (in *intake) hasSyncedLocked() bool {
	select {
	case <-in.synced:
		return true
	default:
		return false
	}
}
