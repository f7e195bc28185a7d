package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/shard"
)

// scope is the loop that lists and watches one namespace, or all namespaces, in one goroutine. It makes the parts of
// the package and decides which of them runs.
type scope struct {
	cfg       *Config
	namespace string
	log       *slog.Logger
	newSink   func(namespace string) Sink
	fail      func(error) // ends the source
	backoff   backoff.Policy
	done      chan struct{}
	stop      context.CancelFunc // set before the goroutine starts
	reached   string             // a version that the source has seen; the first list is not older

	condition *condition
	filter    *slotFilter
	requests  *requester

	// mu guards what SetSelectors and Sharding.Set change.
	mu       sync.Mutex
	wanted   Selectors
	endCycle context.CancelCauseFunc // nil between cycles

	// Owned by the goroutine of the scope.
	sink      Sink
	selectors Selectors // of the current cycle
	agenda    agenda
	counts    Counters // published to the condition after each batch
	names     *namespaces
	pos       position
	resume    resumption
	kinds     kindCheck
	progress  *progress
	prober    *prober
	lister    *lister
	watcher   *watcher
}

// connect makes the parts that fill the sink.
func (s *scope) connect(sink Sink) {
	s.sink = sink
	s.kinds = kindCheck{
		excerpt: s.cfg.excerpt, apiVersion: s.cfg.Resource.GroupVersion().String(),
		isSinkEmpty: func() bool { return sink.Known().Count == 0 },
	}
	s.progress = &progress{
		log: s.log, sink: sink, condition: s.condition, counts: &s.counts, pos: &s.pos, resume: &s.resume,
		agenda: &s.agenda,
	}
	bad := &quarantine{
		cfg: s.cfg, log: s.log, sink: sink, counts: &s.counts, added: s.condition.addUnreadable,
	}
	s.prober = &prober{
		cfg: s.cfg, log: s.log, open: s.open, reconnect: s.requests.reconnect, contact: s.progress.contact,
		counts: &s.counts, kinds: &s.kinds, pos: &s.pos,
	}
	s.lister = &lister{
		cfg: s.cfg, log: s.log, open: s.open, reconnect: s.requests.reconnect, counts: &s.counts, pos: &s.pos,
		kinds: &s.kinds, filter: s.filter, names: s.names, prober: s.prober, progress: s.progress,
		stager: &stager{sink: sink, kinds: &s.kinds, filter: s.filter, quarantine: bad},
		pager:  &pager{cfg: s.cfg, log: s.log, open: s.open, backoff: s.backoff, kinds: &s.kinds, progress: s.progress},
		initial: &initialEvents{
			cfg: s.cfg, log: s.log, counts: &s.counts, kinds: &s.kinds, filter: s.filter, prober: s.prober,
			progress: s.progress,
		},
	}
	s.watcher = &watcher{
		cfg: s.cfg, log: s.log, open: s.open, sink: sink, counts: &s.counts, pos: &s.pos, kinds: &s.kinds,
		filter: s.filter, prober: s.prober, resume: &s.resume, quarantine: bad, progress: s.progress,
	}
}

// open opens the response of a request for what the scope holds.
func (s *scope) open(ctx context.Context, q query) (*stream, error) {
	if q.selectors == nil {
		q.selectors = new(s.selectors)
	}
	if q.slots == nil {
		q.slots = s.filter.current()
	}
	return s.requests.open(ctx, q)
}

// run repeats attempt and repair until ctx is done. A panic of the sink ends the source.
func (s *scope) run(ctx context.Context) {
	if p := protect.Call(func() { s.work(ctx) }); p != nil {
		if of, ok := p.Value.(*protect.Panic); ok { // on the goroutine of a reader
			p = of
		}
		s.fail(fmt.Errorf("cannot go on with %s: panic: %w", s.cfg.Resource, p))
	}
}

func (s *scope) work(ctx context.Context) {
	s.connect(s.newSink(s.namespace))
	known := s.sink.Known()
	if s.filter.isSharded() {
		if _, ok := s.sink.(Sharded); !ok {
			s.fail(fmt.Errorf("cannot hold some slots of %s: %T is no source.Sharded", s.cfg.Resource, s.sink))
			return
		}
		known.Version = "" // the content may belong to other slots
	}
	if known.Version == "" {
		s.pos.start(s.reached)
		s.agenda.requireConsistentList()
		s.progress.begin(ReasonListing)
	} else {
		s.pos.start(known.Version)
		s.resume.begin()
		s.progress.begin(ReasonWatching)
	}
	defer s.progress.stopped()
	if sink, ok := s.sink.(Surveyed); ok {
		surveyor := newSurveyor(s.cfg, s.requests.open, s.selected)
		defer surveyor.close()
		sink.Survey(surveyor)
	}
	for ctx.Err() == nil {
		s.cycle(ctx)
	}
}

// status returns the condition of the scope. Any goroutine may call it.
func (s *scope) status() Status { return s.condition.current() }

// reachedAtLeast returns the newer of version and the version that the scope has seen. If history was rolled back, it
// is the one that the scope has seen. The scope has ended.
func (s *scope) reachedAtLeast(version string) string {
	if s.pos.isUnknown() || !s.pos.isBehind(s.reached) && s.pos.isBehind(version) {
		return version
	}
	return string(s.pos.version())
}

// slotProgress returns the changes of the slots that the scope has completed. Any goroutine may call it.
func (s *scope) slotProgress() slotProgress { return s.filter.progress() }

// selected returns the current content of the scope. Any goroutine may call it.
func (s *scope) selected() (Selectors, *shard.Set) {
	s.mu.Lock()
	sel := s.wanted
	s.mu.Unlock()
	return sel, s.filter.current()
}

var errReselected = errors.New("selectors have changed")

// cycle runs attempts with one set of selectors and slots, until these change or ctx is done.
func (s *scope) cycle(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	if s.wanted != s.selectors {
		s.selectors = s.wanted
		s.agenda.requireList()
	}
	s.endCycle = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.endCycle = nil
		s.mu.Unlock()
	}()
	s.adoptSlots(ctx)
	if s.filter.holdsNone() {
		s.progress.noSlots(s.filter.isAssigned())
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		err := s.attempt(ctx)
		if ctx.Err() == nil {
			s.repair(ctx, err)
		}
	}
}

// reconfigure changes the selectors of the scope. The caller holds the mutex of the Source.
func (s *scope) reconfigure(sel Selectors) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted = sel
	s.interruptLocked(errReselected)
}

// interrupt ends the current cycle. The caller holds the mutex of the Source.
func (s *scope) interrupt(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.interruptLocked(why)
}

// interruptLocked is interrupt for a caller that holds s.mu.
func (s *scope) interruptLocked(why error) {
	if s.endCycle != nil {
		s.endCycle(why)
	}
}

// adoptSlots applies a change of the slots.
func (s *scope) adoptSlots(ctx context.Context) {
	c, changed := s.filter.adopt(s.sink)
	if !changed {
		return
	}
	s.log.InfoContext(ctx, "slots have changed", "slots", c.held.String(), "came", c.came.String(),
		"left", c.left.String())
	s.pos.keepGains(c.stay)
	if c.empties {
		// The version seen stays, to detect a rollback of history.
		s.agenda.startOver()
		s.pos.forgetChanges()
		s.prober.forget()
	}
	s.filter.publish()
}

// attempt lists if required, then watches. It returns the error that ended the watch.
func (s *scope) attempt(ctx context.Context) error {
	if _, ok := s.sink.(Surveyed); ok && !s.pos.isUnknown() {
		// A survey may have confirmed a newer version.
		if known := s.sink.Known().Version; s.pos.isBehind(known) {
			s.pos.complete(known)
		}
	}
	if gained := s.filter.toList(); !s.agenda.mustList() && !gained.IsEmpty() {
		if err := s.listGained(ctx, gained); err != nil {
			return &listFailure{err, false}
		}
	}
	var st *stream
	if s.agenda.isListDue() {
		var err error
		if st, err = s.listAll(ctx); err != nil {
			return err
		}
	}
	err := s.watcher.watch(ctx, st)
	if s.agenda.needsProbe(err, s.pos.version()) && ctx.Err() == nil {
		err = s.explainStuck(ctx, err)
	}
	if s.resume.watchEnded(err) {
		s.agenda.requireList()
	}
	return err
}

// listAll lists everything that is held. If it used the initial events of a watch, it returns the open stream.
func (s *scope) listAll(ctx context.Context) (*stream, error) {
	consistent := s.agenda.isConsistent() || s.pos.isUnknown() || !s.filter.toList().IsEmpty()
	traced, span := s.requests.spans.start(ctx, "list")
	st, err := s.lister.sync(traced, listOf{consistent: consistent, reason: string(s.agenda.reason())})
	endListSpan(ctx, span, consistent, st != nil, err)
	_, malformed := errors.AsType[*ProtocolError](err)
	switch {
	case err == nil:
		s.agenda.listed()
		s.pos.forgetGains()
		s.filter.allListed()
	case s.agenda.mustList() || !malformed:
		return nil, &listFailure{err, !consistent}
	default:
		s.progress.degraded(ReasonProtocolError, err)
		s.agenda.unverified()
	}
	return st, nil
}

// listGained lists the gained slots and adds them. If versions have no order, the scope cannot tell which changes of
// the watch are new. It then lists everything.
func (s *scope) listGained(ctx context.Context, gained shard.Set) error {
	if !s.pos.isOrdered() {
		s.agenda.requireConsistentList()
		return nil
	}
	traced, span := s.requests.spans.start(ctx, "list")
	st, err := s.lister.sync(traced, listOf{consistent: true, gained: &gained})
	endListSpan(ctx, span, true, st != nil, err)
	if st != nil { // the watch of all held slots continues instead
		st.close()
	}
	if err == errUnordered {
		s.agenda.requireConsistentList()
		return nil
	}
	return err
}

// explainStuck probes the server after watches at one version have failed several times. If the probe succeeds, the
// scope lists again and watches from the new version.
func (s *scope) explainStuck(ctx context.Context, err error) error {
	switch failed := s.prober.checkHistory(ctx); failed {
	case nil:
		s.log.InfoContext(ctx, "watch fails again and again while the server can be read, listing", "version",
			string(s.pos.version()), "error", err)
		s.agenda.probed()
	case errRolledBack:
		return errRolledBack
	}
	return err
}

// repair applies the remedy for the end of an attempt and waits if required.
func (s *scope) repair(ctx context.Context, err error) {
	r, wait := s.agenda.repair(err, s.backoff, s.cfg.Rand)
	if r.reconnect {
		s.requests.reconnect()
	}
	if r.reason == ReasonNotFound {
		s.kinds.forget()
	}
	if wait > 0 {
		s.progress.waits(wait)
	}
	s.log.DebugContext(ctx, "attempt has ended", "error", err, "relist", s.agenda.mustList(),
		"consistent", s.agenda.isConsistent(), "wait", wait)
	switch {
	case r.degraded:
		s.progress.degraded(r.reason, err)
	case r.reason != "":
		s.progress.repairing(r.reason, err)
	}
	_ = backoff.Pause(ctx, wait) // the caller checks ctx
}
