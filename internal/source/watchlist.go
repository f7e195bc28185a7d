package source

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"time"
)

// Budget of the initial events of a watch. Each period of ListProgressTimeout must deliver an object. After busyAfter
// periods, each must deliver busyObjects, because a busy server sends changes even if the end of the initial events was
// lost.
const (
	busyAfter   = 4
	busyObjects = 1000
	// maxGap is the longest gap between objects. A server that supports initial events sends them without gaps.
	maxGap = 10 * time.Second
	// checkAfter is the gap after which a LIST of one object checks whether more objects follow. A server without
	// support for initial events does not mark their end, and sends no bytes if there are no objects.
	checkAfter = 2 * time.Second
)

// noWatchListFor is how long the scope uses LIST after initial events that never ended. noWatchListRefused applies
// after the server rejected them.
const (
	noWatchListFor     = 10 * time.Minute
	noWatchListRefused = 24 * time.Hour
)

// initialEvents receives the content of a scope as the initial events of a watch (KEP-3157). It remembers that a server
// does not support them. The goroutine of the scope owns it.
type initialEvents struct {
	cfg      *Config
	log      *slog.Logger
	counts   *Counters
	kinds    *kindCheck
	filter   *slotFilter
	prober   *prober
	progress listProgress

	notBefore time.Time // initial events are not requested before this time
	fellBack  Reason    // last logged reason for a LIST instead; "": none
}

// isUsable reports whether to request initial events.
func (i *initialEvents) isUsable() bool { return !i.cfg.NoWatchList && !time.Now().Before(i.notBefore) }

// succeeded records that initial events have been committed.
func (i *initialEvents) succeeded() { i.fellBack = "" }

// receive stages the initial events of a stream, up to the bookmark that ends them.
func (i *initialEvents) receive(ctx context.Context, st *stream, l *listing) error {
	patience := i.cfg.ListProgressTimeout
	timer := time.NewTimer(patience)
	defer timer.Stop()
	began, objects := time.Now(), 0
	window := began
	opened, asked := false, false
	for {
		e, err := st.buffered()
		switch {
		case e != nil:
			opened = opened || e.kind == evOpened
			if done, err := i.stage(e, l); done || err != nil {
				return err
			}
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return &initialEventsError{cause: err}
		case err != nil:
			return err
		default:
			if time.Since(window) >= patience {
				late := time.Since(began) >= busyAfter*patience
				if n := l.count - objects; n == 0 || late && (n < busyObjects || i.isRepeating(ctx, l)) {
					st.abandon()
					return &initialEventsError{cause: ErrStalled}
				}
				window, objects = time.Now(), l.count
			}
			wait := patience
			if l.count > 0 {
				wait = min(wait, maxGap)
			}
			if opened && !asked && checkAfter < wait {
				arrived, err := st.arrives(ctx, timer, checkAfter)
				switch {
				case err != nil:
					return err
				case arrived:
					continue
				}
				asked = true
				if err := i.checkUnended(ctx, st, l, timer); err != nil {
					return err
				}
				continue
			}
			if err := st.await(ctx, timer, wait); err != nil {
				if errors.Is(err, ErrStalled) {
					err = &initialEventsError{cause: err}
				}
				return err
			}
		}
	}
}

// checkUnended returns an error if the server has sent all objects and sends nothing more, without an end of the
// initial events.
func (i *initialEvents) checkUnended(ctx context.Context, st *stream, l *listing, timer *time.Timer) error {
	if !i.isComplete(ctx, st, l) {
		return nil
	}
	arrived, err := st.arrives(ctx, timer, checkAfter)
	if err == nil && !arrived {
		err = &initialEventsError{cause: errNoFinalBookmark}
	}
	return err
}

// isComplete reports whether the stream has delivered as many objects as the server has.
func (i *initialEvents) isComplete(ctx context.Context, st *stream, l *listing) bool {
	m, err := i.prober.list(ctx)
	if err != nil || st.hasBatch() {
		return false
	}
	if !i.filter.holdsAll() {
		return m.next == "" && l.count >= m.count // remaining includes objects of other slots
	}
	total := m.count + int(m.remaining)
	return l.count >= total && (m.next == "" || m.remaining > 0)
}

// isRepeating reports whether the stream has delivered more than twice as many objects as the server has, so it repeats
// them.
func (i *initialEvents) isRepeating(ctx context.Context, l *listing) bool {
	m, err := i.prober.list(ctx)
	isCounted := m.next == "" || m.remaining > 0 && i.filter.holdsAll()
	return err == nil && isCounted && l.count > 2*(m.count+int(m.remaining))
}

var errNoFinalBookmark = errors.New("all objects arrived without the final bookmark")

// stage processes one of the initial events. done reports whether it was the bookmark that ends them.
func (i *initialEvents) stage(e *event, l *listing) (done bool, err error) {
	switch e.kind {
	case evOpened:
		i.progress.contact()
		i.progress.listOpened()
	case evError:
		return false, e.err
	case evGarbage:
		return false, &ProtocolError{What: "malformed watch event", Excerpt: i.cfg.excerpt(e.obj.Raw), Err: e.err}
	case evObject:
		l.change(e)
	case evBookmark:
		if !e.initialEnd {
			return false, nil // an ordinary bookmark does not end the list
		}
		version := string(e.obj.Header.ResourceVersion)
		if version == "" || version == "0" {
			return false, &ProtocolError{What: "bookmark without resource version"}
		}
		if err := i.kinds.list(string(e.obj.Header.Kind), string(e.obj.Header.APIVersion)); err != nil {
			return false, err
		}
		l.version = version
		i.counts.Watches++
		return true, nil
	}
	return false, nil
}

// fallsBack reports whether LIST may succeed after initial events failed. It also sets how long the scope does not
// request initial events, and reports the reason.
func (i *initialEvents) fallsBack(ctx context.Context, err error) bool {
	if ctx.Err() != nil || !i.mayList(err) {
		return false
	}
	reason := reasonFor(err)
	if reason != i.fellBack { // log each reason once
		i.fellBack = reason
		i.log.InfoContext(ctx, "server does not stream initial events, listing instead", "error", err)
	}
	if api, refused := errors.AsType[*APIError](err); !refused || api.Code >= http.StatusInternalServerError {
		i.progress.degraded(reason, err) // a 4xx status only means that the server does not support it
	}
	return true
}

func (i *initialEvents) mayList(err error) bool {
	api, refused := errors.AsType[*APIError](err)
	_, unfinished := errors.AsType[*initialEventsError](err)
	_, malformed := errors.AsType[*ProtocolError](err)
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
			i.notBefore = time.Now().Add(noWatchListRefused)
		}
		return true
	case unfinished || malformed:
		i.notBefore = time.Now().Add(noWatchListFor)
		return true
	}
	return false
}
