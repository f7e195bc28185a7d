package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// Errors of a watch that ended without a fault.
var (
	errEnded     = errors.New("server ended the watch")
	errEndedSoon = errors.New("server ended the watch after a short time")
	errLifetime  = errors.New("watch reached its maximum lifetime")
	errResume    = fmt.Errorf("%w, resuming to check the connection", ErrSilent)
)

// errRolledBack: the server's version is below the version seen. A consistent list follows.
var errRolledBack = errors.New("server is behind the version seen")

// grace is how long a watch must stay open before the scope counts as recovered. An event ends the wait early.
const grace = time.Second

// settled is how long a watch must stay open before earlier faults are forgotten. An earlier event only resets the
// back-off (history.progress).
const settled = 10 * time.Second

// watching is one open watch.
type watching struct {
	*stream
	opened   time.Time
	frames   int // events and bookmarks
	last     time.Time
	graceful *time.Timer
}

// watchTimeout returns the timeout to request: one to two thirds of MaxWatch, at random, so that watches that start
// together end at different times.
func (s *scope) watchTimeout() time.Duration {
	limit := s.src.cfg.MaxWatch
	return limit/3 + time.Duration(s.src.cfg.Rand()*float64(limit)/3)
}

// watch receives the changes after the version seen, on st or on a new stream, until an error or the end of the stream.
func (s *scope) watch(ctx context.Context, st *stream) error {
	w := &watching{stream: st, last: time.Now()}
	asked, limit := s.lifetime()
	if s.recent.base == nil {
		s.recent.reset(string(s.seen))
	}
	if st != nil {
		s.opened(w)
	} else {
		var err error
		if w.stream, err = s.open(ctx, query{watch: true, version: string(s.seen), timeout: asked}); err != nil {
			return err
		}
		w.last = time.Now()
	}
	defer func() {
		w.close()
		if !w.opened.IsZero() && time.Since(w.opened) > settled {
			s.history.settled()
		}
	}()
	budget := s.src.cfg.SilenceBudget
	silence := time.NewTimer(budget)
	defer silence.Stop()
	lifetime := time.NewTimer(limit)
	defer lifetime.Stop()
	w.graceful = time.NewTimer(grace)
	defer w.graceful.Stop()
	heard := false
	for {
		e, err := w.buffered()
		if e != nil {
			if err := s.event(ctx, w, e); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			if heard {
				s.contact()
			}
			return s.ended(w, err)
		}
		if heard {
			heard = false
			s.contact()
		}
		select {
		case b := <-w.out:
			w.receive(b)
			if b.n > 0 { // an end or an error alone does not confirm the content
				w.last = time.Now()
				heard = true
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-lifetime.C:
			if w.inside.Load() {
				return fmt.Errorf("event is not complete at the end of a watch of %v: %w", limit, ErrStalled)
			}
			s.recovered(w)
			return errLifetime
		case <-w.graceful.C:
			s.recovered(w)
		case <-silence.C:
			quiet := time.Since(w.last)
			if w.inside.Load() {
				quiet = w.idle() // a large event may take long while bytes arrive
			}
			if quiet < budget {
				silence.Reset(budget - quiet)
				continue
			}
			if err := s.silent(ctx, w); err != nil {
				return err
			}
			silence.Reset(budget)
		}
	}
}

func (s *scope) opened(w *watching) {
	w.opened = time.Now()
	s.contact() // before the report, which then has the new LastContact
	if s.phase() != Degraded && !s.resume.due {
		s.report(Watching, ReasonWatching, nil)
	}
}

// recovered reports a working watch.
func (s *scope) recovered(w *watching) {
	if !w.opened.IsZero() && !s.resume.due {
		s.report(Watching, ReasonWatching, nil)
	}
}

// ended returns the error for the end of a stream.
func (s *scope) ended(w *watching, err error) error {
	if err != io.EOF {
		return err
	}
	lived := time.Since(w.opened)
	if time.Since(w.began) < w.limit { // otherwise the requested timeout has passed
		switch {
		case w.frames == 0 && lived < quickEnd:
			return ErrEnded
		case lived < time.Second:
			return errEndedSoon
		}
	}
	s.recovered(w)
	return errEnded
}

// event processes one event of a watch.
func (s *scope) event(ctx context.Context, w *watching, e *event) error {
	switch e.kind {
	case evOpened:
		s.count.Watches++
		s.opened(w)
		return s.askHowFar(ctx)
	case evError:
		return e.err
	case evGarbage:
		return s.garbage(ctx, w, e)
	case evBookmark:
		return s.bookmark(ctx, w, e)
	case evObject:
		return s.change(ctx, w, e)
	}
	return nil
}

// progress records an event of the watch. The first one ends earlier faults.
func (s *scope) progress(w *watching) {
	w.frames++
	if w.frames == 1 {
		s.history.progress()
		s.recovered(w)
	}
}

func (s *scope) change(ctx context.Context, w *watching, e *event) error {
	version := e.obj.Header.ResourceVersion
	if s.changedElsewhere(e) {
		s.advance(w, version)
		return nil
	}
	if err := s.checkKind(&e.obj); err != nil {
		return err
	}
	e.deletionNeedsNoContent()
	order, comparable := resourceversion.Compare(version, s.seen)
	replay := comparable && order <= 0 && !s.recent.missed(&e.obj) || !comparable && s.recent.has(e.change, version)
	// A deletion may carry a version that the object had before. Only the sink can distinguish it from a replay.
	if replay && e.change == Deleted && e.err == nil && comparable && !s.recent.buried(&e.obj) {
		return s.oldDeletion(ctx, w, e, order < 0)
	}
	if replay {
		s.count.Suppressed++
		if order < 0 {
			return s.suspect(ctx)
		}
		return nil
	}
	if s.wasListed(e) {
		s.count.Suppressed++
		s.recent.add(e.change, &e.obj)
		s.advance(w, version)
		return nil
	}
	if e.err == nil && e.change != Deleted && !noVersion(version) && foreign(version, s.seen) {
		e.err = &ProtocolError{
			What:    "version " + string(version) + " where versions are numbers",
			Excerpt: s.excerpt(e.obj.Raw),
		}
	}
	if e.err == nil {
		e.err = s.sink.Apply(e.change, &e.obj)
	}
	if e.err != nil {
		s.quarantine(&e.obj, e.err)
	} else {
		s.count.Events++
	}
	s.recent.add(e.change, &e.obj)
	s.advance(w, version)
	return nil
}

// oldDeletion applies a deletion whose version is not newer than the version seen.
func (s *scope) oldDeletion(ctx context.Context, w *watching, e *event, older bool) error {
	if err := s.sink.Apply(Deleted, &e.obj); err != nil {
		s.quarantine(&e.obj, err)
	} else {
		s.count.Events++
	}
	s.recent.add(Deleted, &e.obj)
	s.progress(w)
	if older {
		return s.suspect(ctx)
	}
	return nil
}

func (s *scope) bookmark(ctx context.Context, w *watching, e *event) error {
	version := e.obj.Header.ResourceVersion
	if noVersion(version) || foreign(version, s.seen) {
		return nil
	}
	if resourceversion.Older(version, s.seen) {
		s.count.Suppressed++
		return s.suspect(ctx)
	}
	s.count.Bookmarks++
	s.sink.Bookmark(string(version))
	s.advance(w, version)
	return nil
}

func (s *scope) advance(w *watching, version []byte) {
	if !noVersion(version) && !resourceversion.Older(version, s.seen) && !foreign(version, s.seen) {
		s.seen = append(s.seen[:0], version...)
	}
	if s.pending != "" && resourceversion.AtLeast(s.seen, s.pending) {
		s.pending = ""
	}
	s.silentRelistGap = 0
	s.passGains()
	s.progress(w)
	s.checkResumed()
}

// garbage handles an unreadable frame. On its first occurrence the watch is resumed to fetch it again. On its second, a
// deletion with a name is applied. Any other frame is quarantined. Unless it names an added or modified object, a list
// must follow: now if the last such list is older than the silence budget, else when the watch ends.
func (s *scope) garbage(ctx context.Context, w *watching, e *event) error {
	unreadable := &ProtocolError{What: "malformed watch event", Excerpt: s.excerpt(e.obj.Raw), Err: e.err}
	if s.garbageAt != string(s.seen) {
		s.garbageAt = string(s.seen)
		return unreadable
	}
	named := len(e.obj.Header.Name) > 0
	if e.change == Deleted && named && !noVersion(e.obj.Header.ResourceVersion) {
		return s.change(ctx, w, e)
	}
	s.quarantine(&e.obj, e.err)
	if named && (e.change == Added || e.change == Modified) {
		return nil
	}
	s.verify = true
	if now := time.Now(); !now.Before(s.nextGarbageRelist) {
		s.nextGarbageRelist = now.Add(s.src.cfg.SilenceBudget)
		return unreadable
	}
	return nil
}
