package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/connection"
	"github.com/fairlead-io/fairlead/internal/protect"
)

// scope lists and watches one namespace, or all namespaces, in one goroutine.
type scope struct {
	src       *Source
	namespace string
	log       *slog.Logger
	done      chan struct{}
	stop      context.CancelFunc // set before the goroutine starts
	backoff   backoff.Policy

	// Guarded by mu; shared with callers of Status and SetSelectors.
	mu       sync.Mutex
	status   Status
	wanted   Selectors
	reselect context.CancelCauseFunc // ends the current cycle; nil between cycles

	// Owned by the goroutine of the scope.
	sink       Sink
	selectors  Selectors
	seen       []byte   // last version seen; empty: none
	apiVersion string   // of the objects
	kind       string   // of the objects, once a list of them has been applied
	guess      string   // provisional kind until then
	unread     int      // objects quarantined since the last list began
	unreadErr  error    // error of the first of them
	relist     bool     // list before the next watch
	verify     bool     // list, but continue to watch if the list is unreadable, too
	fresh      bool     // the next list must be consistent
	history    history  // consecutive faults
	count      Counters // published to status after each batch

	noWatchListUntil time.Time // after the server rejected initial events or did not end them
	fellBack         Reason    // last logged reason for a LIST instead of initial events; "": none
	pending          string    // server version that a silent watch has not reached; "": none
	nextSuspicion    time.Time // earliest next probe after an older version
	nextSilentRelist time.Time
	silentRelistGap  time.Duration
	used             atomic.Pointer[connection.Generation] // of the last request
	recent           recent
	estimates        bool   // remainingItemCount is not exact
	sharing                 // slots that are held
	namespaces              // namespaces of the objects seen
	garbageAt        string // version after which a frame was unreadable
	resume           resumption

	nextGarbageRelist time.Time
}

// logger returns a Logger whose attributes distinguish the watches of one resource.
func (c *Config) logger(namespace string) *slog.Logger {
	attrs := []any{"resource", c.Resource.String(), "namespace", namespace}
	for _, sel := range []struct{ name, selector string }{
		{"labels", c.LabelSelector}, {"fields", c.FieldSelector},
	} {
		if sel.selector != "" {
			attrs = append(attrs, sel.name, sel.selector)
		}
	}
	if c.Metadata {
		attrs = append(attrs, "content", "metadata")
	}
	return c.Logger.With(attrs...)
}

func newScope(src *Source, namespace string) *scope {
	s := &scope{
		src: src, namespace: namespace, done: make(chan struct{}), apiVersion: src.cfg.Resource.GroupVersion().String(),
		log:     src.cfg.logger(namespace),
		backoff: backoff.Policy{Base: src.cfg.BackoffBase, Cap: src.cfg.BackoffCap},
		wanted:  src.selectors, selectors: src.selectors,
		status: Status{Namespace: namespace, Phase: Connecting, Reason: ReasonListing, Since: time.Now()},
	}
	if src.sharding != nil {
		s.slots = new(src.sharding.layout.Set())
	}
	return s
}

var errReselected = errors.New("selectors have changed")

// run repeats attempt and repair until ctx is done. A panic of the sink ends the source.
func (s *scope) run(ctx context.Context) {
	if p := protect.Call(func() { s.work(ctx) }); p != nil {
		s.src.fail(fmt.Errorf("cannot go on with %s: panic: %w", s.src.cfg.Resource, p))
	}
}

func (s *scope) work(ctx context.Context) {
	s.sink = s.src.newSink(s.namespace)
	known := s.sink.Known()
	if s.src.sharding != nil {
		if _, ok := s.sink.(Sharded); !ok {
			s.src.fail(fmt.Errorf("cannot hold some slots of %s: %T is no source.Sharded", s.src.cfg.Resource, s.sink))
			return
		}
		known.Version = "" // the content may belong to other slots
	}
	s.see(known.Version)
	s.relist = known.Version == ""
	s.resume.due = !s.relist
	s.announce(known.Version != "")
	defer s.report(Stopped, ReasonEnded, nil)
	defer s.survey()()
	for ctx.Err() == nil {
		s.cycle(ctx)
	}
}

// announce sends the first report to the sink.
func (s *scope) announce(resuming bool) {
	s.mu.Lock()
	s.status.Phase = "" // so that the report is a change
	s.mu.Unlock()
	if resuming {
		s.report(Connecting, ReasonWatching, nil)
	} else {
		s.report(Connecting, ReasonListing, nil)
	}
}

// cycle runs attempts with one set of selectors and slots, until these change or ctx is done.
func (s *scope) cycle(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.mu.Lock()
	if s.wanted != s.selectors {
		s.selectors, s.relist = s.wanted, true
	}
	s.reselect = cancel
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.reselect = nil
		s.mu.Unlock()
	}()
	s.holdSlots(ctx)
	if s.restWithoutSlots(ctx) {
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

func (s *scope) interruptLocked(why error) {
	if s.reselect != nil {
		s.reselect(why)
	}
}

// attempt lists if required, then watches. It returns the error that ended the watch.
func (s *scope) attempt(ctx context.Context) error {
	s.caughtUp()
	if !s.relist && !s.unlisted.IsEmpty() {
		if err := s.gainSlots(ctx); err != nil {
			return &listFailure{err, false}
		}
	}
	var st *stream
	if s.relist || s.verify {
		consistent := s.fresh || len(s.seen) == 0 || !s.unlisted.IsEmpty()
		var err error
		traced, span := s.trace(ctx, "list")
		st, err = s.sync(traced, listOf{consistent: consistent})
		s.endListTrace(ctx, span, consistent, st, err)
		_, odd := errors.AsType[*ProtocolError](err)
		switch {
		case err == nil:
			s.relist, s.fresh = false, false
			s.history.atVersion = 0
			s.allListed()
		case s.relist || !odd:
			return &listFailure{err, !consistent}
		default:
			s.report(Degraded, ReasonProtocolError, err)
		}
		s.verify = false
	}
	err := s.stuck(ctx, s.watch(ctx, st))
	s.stillResuming(err)
	return err
}

// listFailure marks an error as one of a list and not of a watch.
type listFailure struct {
	error
	atVersion bool // the list was requested at the version seen
}

func (e *listFailure) Unwrap() error { return e.error }

// see sets the last version seen.
func (s *scope) see(version string) { s.seen = append(s.seen[:0], version...) }

// contact records a useful response of the server and publishes the counters.
func (s *scope) contact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.LastContact = time.Now()
	if s.status.Version != string(s.seen) {
		s.status.Version = string(s.seen)
	}
	s.status.Counters = s.count
}

// triedAgain publishes the time of the next attempt.
func (s *scope) triedAgain(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Next = time.Now().Add(wait)
}

func (s *scope) currentStatus() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// report updates the status. It calls the sink when phase or reason change. err is nil if there is no fault.
func (s *scope) report(phase Phase, reason Reason, err error) {
	s.mu.Lock()
	changed := s.status.Phase != phase || s.status.Reason != reason
	if changed {
		s.status.Phase, s.status.Reason, s.status.Since = phase, reason, time.Now()
	}
	s.status.Err, s.status.Message = err, message(err)
	if phase == Degraded && (reason == ReasonNotFound || reason == ReasonForbidden) {
		s.status.LastRefusal = time.Now()
	}
	if err == nil && phase == Watching {
		s.status.Message = s.unreadMessage()
	}
	s.status.Version = string(s.seen)
	s.status.Counters = s.count
	status := s.status
	s.mu.Unlock()
	if !changed {
		return
	}
	level := slog.LevelInfo
	if phase == Degraded {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "source state changed", "phase", phase, "reason", reason,
		"message", status.Message, "version", status.Version)
	s.sink.Report(status)
}

func (s *scope) phase() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.Phase
}

// message returns the server's message if err has one, else the text of err.
func message(err error) string {
	if err == nil {
		return ""
	}
	if api, ok := errors.AsType[*APIError](err); ok && api.ErrStatus.Message != "" {
		return api.ErrStatus.Message
	}
	return err.Error()
}
