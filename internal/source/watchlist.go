package source

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Budget of the initial events of a watch. Each period of ListProgressTimeout must deliver an object. After busyAfter
// periods, each must deliver busyObjects, because a busy server sends changes even if the end of the initial events was
// lost.
const (
	busyAfter   = 4
	busyObjects = 1000
	// pause is the longest gap between objects. A server that supports initial events sends them without gaps.
	pause = 10 * time.Second
	// lull is the gap after which a LIST of one object checks whether more objects follow. A server without support for
	// initial events does not mark their end, and sends no bytes if there are no objects.
	lull = 2 * time.Second
)

// noWatchListFor is how long the scope uses LIST after initial events that never ended. noWatchListRefused applies
// after the server rejected them.
const (
	noWatchListFor     = 10 * time.Minute
	noWatchListRefused = 24 * time.Hour
)

// watchList fetches the content as the initial events of a watch (KEP-3157) and commits it. The caller continues to use
// the returned stream as the watch.
func (s *scope) watchList(ctx context.Context, of listOf) (_ *stream, err error) {
	q := query{watch: true, sendInitialEvents: true, match: notOlderThan, timeout: s.watchTimeout(), slots: of.gained}
	if !of.consistent {
		q.version = string(s.seen)
	}
	st, err := s.open(ctx, q)
	if err != nil {
		return nil, err
	}
	l := s.replace(of, nil)
	ended := s.listEverything()
	defer func() {
		l.close()
		ended(err)
		if err != nil {
			st.close()
		}
	}()
	patience := s.src.cfg.ListProgressTimeout
	timer := time.NewTimer(patience)
	defer timer.Stop()
	began, objects := time.Now(), 0
	window := began
	asked := false
	for {
		e, err := st.buffered()
		switch {
		case e != nil:
			done, err := s.stageInitial(ctx, e, l)
			if err != nil {
				return nil, err
			}
			if done {
				return st, nil
			}
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return nil, &initialEventsError{cause: err}
		case err != nil:
			return nil, err
		default:
			if time.Since(window) >= patience {
				late := time.Since(began) >= busyAfter*patience
				if n := l.count - objects; n == 0 || late && (n < busyObjects || s.isFarTooMuch(ctx, l)) {
					s.abandon(st)
					return nil, &initialEventsError{cause: ErrStalled}
				}
				window, objects = time.Now(), l.count
			}
			wait := patience
			if l.count > 0 {
				wait = min(wait, pause)
			}
			if l.opened && !asked && lull < wait {
				heard, err := s.hears(ctx, st, timer, lull)
				if err != nil {
					return nil, err
				}
				if heard {
					continue
				}
				asked = true
				if s.isAllThereIs(ctx, st, l) {
					if heard, err = s.hears(ctx, st, timer, lull); err != nil {
						return nil, err
					}
					if !heard {
						return nil, &initialEventsError{cause: errNotKnown}
					}
				}
				continue
			}
			if err := s.await(ctx, st, timer, wait); err != nil {
				if errors.Is(err, ErrStalled) {
					err = &initialEventsError{cause: err}
				}
				return nil, err
			}
		}
	}
}

// isAllThereIs reports whether the stream has delivered as many objects as the server has, without an end of the
// initial events.
func (s *scope) isAllThereIs(ctx context.Context, st *stream, l *listing) bool {
	m, err := s.probeList(ctx)
	if err != nil || len(st.out) > 0 {
		return false
	}
	if !s.isWhole() {
		return m.next == "" && l.count >= m.count // remaining includes objects of other slots
	}
	total := m.count + int(m.remaining)
	return l.count >= total && (m.next == "" || m.remaining > 0)
}

// isFarTooMuch reports whether the stream has delivered more than twice as many objects as the server has, so it
// repeats them.
func (s *scope) isFarTooMuch(ctx context.Context, l *listing) bool {
	m, err := s.probeList(ctx)
	return err == nil && (m.next == "" || m.remaining > 0 && s.isWhole()) && l.count > 2*(m.count+int(m.remaining))
}

var errNotKnown = errors.New("all objects arrived without the final bookmark")

// initialEventsError reports that a watch did not end its initial events.
type initialEventsError struct{ cause error }

func (e *initialEventsError) Error() string { return errNoEndOfList.Error() + ": " + e.cause.Error() }
func (e *initialEventsError) Unwrap() error { return e.cause }

// stageInitial processes one of the initial events. done reports whether it was the bookmark that ends them.
func (s *scope) stageInitial(ctx context.Context, e *event, l *listing) (done bool, err error) {
	switch e.kind {
	case evOpened:
		l.opened = true
		s.contact()
		s.listing()
	case evError:
		return false, e.err
	case evGarbage:
		return false, &ProtocolError{What: "malformed watch event", Excerpt: s.excerpt(e.obj.Raw), Err: e.err}
	case evObject:
		if e.change == Deleted {
			l.count--
			elsewhere := s.listedElsewhere(l, e)
			if e.deletionNeedsNoContent(); e.err == nil && !elsewhere {
				l.Remove(&e.obj)
			}
			return false, nil
		}
		if e.change == Added {
			l.count++
		}
		if !s.listedElsewhere(l, e) {
			s.put(l, e)
		}
	case evBookmark:
		if !e.initialEnd {
			return false, nil // an ordinary bookmark does not end the list
		}
		version := string(e.obj.Header.ResourceVersion)
		if version == "" || version == "0" {
			return false, &ProtocolError{What: "bookmark without resource version"}
		}
		if err := s.checkList(string(e.obj.Header.Kind), string(e.obj.Header.APIVersion)); err != nil {
			return false, err
		}
		l.version = version
		s.count.Watches++
		return true, s.accept(ctx, l)
	}
	return false, nil
}

// fallsBack reports whether LIST may succeed after initial events failed. It also sets how long the scope does not
// request initial events.
func (s *scope) fallsBack(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	api, refused := errors.AsType[*APIError](err)
	_, unfinished := errors.AsType[*initialEventsError](err)
	_, strange := errors.AsType[*ProtocolError](err)
	switch {
	case refused && isExpired(err), refused && isTooLarge(err):
		return false
	case refused:
		switch api.Code {
		case http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests:
			return false // LIST would fail, too
		case http.StatusForbidden:
			return true // the list permission may exist; if not, LIST has the better message
		}
		if api.Code < 500 {
			s.noWatchListUntil = time.Now().Add(noWatchListRefused)
		}
		return true
	case unfinished || strange:
		s.noWatchListUntil = time.Now().Add(noWatchListFor)
		return true
	}
	return false
}
