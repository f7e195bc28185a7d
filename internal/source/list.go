package source

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/shard"
)

// restarts is how often a list starts again because its continue token expired: with pages once more, then as a whole.
const restarts = 3

// sync brings the sink up to date with the server and leaves the version in seen, unless that is of slots that have
// come. If it was done by a watch, its stream is returned and goes on.
func (s *scope) sync(ctx context.Context, of listOf) (*stream, error) {
	again := listOf{gained: of.gained}
	unselected := of.gained != nil && s.count.FilteredObjects+s.count.FilteredEvents > 0 // by a watch; lists may be
	if !s.src.cfg.NoWatchList && !unselected && !time.Now().Before(s.noWatchListUntil) {
		st, err := s.watchList(ctx, of)
		var c *confirmation
		switch {
		case err == nil:
			s.fellBack = ""
			return st, nil
		case errors.As(err, &c):
			return nil, s.confirm(ctx, again, c)
		case !s.fallsBack(ctx, err):
			return nil, err
		}
		why := reasonFor(err)
		if why != s.fellBack { // else it has been said
			s.fellBack = why
			s.log.InfoContext(ctx, "initial events of a watch are not to be had, listing instead", "error", err)
		}
		if api, refused := errors.AsType[*APIError](err); !refused || api.Code >= http.StatusInternalServerError {
			s.report(Degraded, why, err) // else it just has no such thing
		}
	}
	err := s.list(ctx, of, nil)
	if c, ok := errors.AsType[*confirmation](err); ok {
		err = s.confirm(ctx, again, c)
	}
	return nil, err
}

// confirm lists again, consistently and over another connection, before many objects are deleted.
func (s *scope) confirm(ctx context.Context, of listOf, c *confirmation) error {
	s.log.WarnContext(ctx, "list would delete many objects, asking again", "missing", c.missing, "known", c.known,
		"listed", c.listed)
	s.tell(reasonFor(c), c)
	s.reconnect()
	of.consistent = true
	err := s.list(ctx, of, c)
	if _, again := errors.AsType[*confirmation](err); again {
		return ErrImplausible
	}
	return err
}

// listOf says what a list is to fetch: all that is held, or slots that have come.
type listOf struct {
	consistent bool
	gained     *shard.Set
}

// list fetches the content page by page and applies it.
func (s *scope) list(ctx context.Context, of listOf, confirms *confirmation) error {
	for n := 1; ; n++ {
		err := s.listOnce(ctx, of, confirms, n == restarts)
		if !errors.Is(err, errTokenExpired) || n == restarts {
			if err != nil {
				s.count.ListErrors++
			}
			return err
		}
		s.log.InfoContext(ctx, "continue token has expired, listing from the beginning", "error", err)
		s.tell(ReasonExpired, err)
	}
}

// errTokenExpired has a list begin anew.
var errTokenExpired = errors.New("continue token has expired")

func (s *scope) listOnce(ctx context.Context, of listOf, confirms *confirmation, whole bool) (err error) {
	q := query{slots: of.gained}
	if !whole {
		q.limit = max(0, s.src.cfg.PageSize)
	}
	l := s.replace(of, confirms)
	defer l.close()
	if of.gained != nil && !whole && confirms == nil {
		if l.only, err = s.snapshot(ctx, of.gained); err != nil {
			return err
		}
	}
	if l.only == nil {
		if !of.consistent {
			q.version, q.match = string(s.seen), notOlderThan
		}
		ended := s.listEverything()
		defer func() { ended(err) }()
		if err := s.pages(ctx, q, l); err != nil {
			return err
		}
		return s.accept(ctx, l)
	}
	l.version, q.version, q.match, q.slots = l.only.version, l.only.version, exactly, new(of.gained.Layout().All())
	for _, q.namespace = range slices.Sorted(maps.Keys(l.only.names)) {
		if err := s.pages(ctx, q, l); err != nil {
			if refusesExactly(err) {
				s.notAllowed = time.Now().Add(noNamespacesFor)
				return errors.Join(errTokenExpired, err) // everything is listed then
			}
			return err
		}
	}
	return s.accept(ctx, l)
}

// pages fetches the pages of one request.
func (s *scope) pages(ctx context.Context, q query, l *listing) error {
	tokens := map[string]bool{}
	for {
		before := l.count
		m, err := s.page(ctx, q, l)
		if err != nil {
			if (q.next != "" || q.match == exactly) && isExpired(err) {
				return errors.Join(errTokenExpired, err)
			}
			return err
		}
		if l.version == "" {
			l.version = m.version // later pages are of the same snapshot
			if l.gained == nil && s.isWhole() {
				l.promised = l.count + int(m.remaining)
			}
		}
		l.gap = l.gap || l.count == before && (q.next != "" || m.next != "")
		if m.next == "" {
			return nil
		}
		if tokens[m.next] {
			return &ProtocolError{What: "list that goes round in circles: a continue token comes again"}
		}
		tokens[m.next] = true
		q.next, q.version, q.match = m.next, "", ""
	}
}

// pageTries bounds the tries of one page after the first: what has been staged by then is worth keeping.
const pageTries = 3

// page fetches one page. A try that fails for a passing reason is repeated with the same token.
func (s *scope) page(ctx context.Context, q query, l *listing) (*listMeta, error) {
	for n := 0; ; n++ {
		before := l.count
		m, err := s.pageOnce(ctx, q, l)
		if err == nil || ctx.Err() != nil || q.next == "" && q.match != exactly || n == pageTries || !passing(err, l.count > before) {
			return m, err
		}
		wait := s.backoff.Delay(n, s.src.cfg.Rand)
		if api, ok := errors.AsType[*APIError](err); ok {
			wait = max(wait, min(api.RetryAfter, maxTold))
		}
		s.log.InfoContext(ctx, "page of a list failed, trying it again", "error", err, "wait", wait)
		s.count.Retries++
		s.triedAgain(wait)
		s.report(Degraded, reasonFor(err), err)
		_ = backoff.Pause(ctx, wait) // the next try says why not
	}
}

// passing says that the same request may well work in a moment. Objects that came from something else than the list
// spoil it.
func passing(err error, objects bool) bool {
	if api, ok := errors.AsType[*APIError](err); ok {
		return api.Code == http.StatusTooManyRequests || api.Code >= http.StatusInternalServerError
	}
	_, odd := errors.AsType[*ProtocolError](err)
	return !odd || !objects || errors.Is(err, io.ErrUnexpectedEOF)
}

func (s *scope) pageOnce(ctx context.Context, q query, l *listing) (*listMeta, error) {
	st, err := s.open(ctx, q)
	if err != nil {
		return nil, err
	}
	defer st.close()
	var end *listMeta
	timer := time.NewTimer(s.src.cfg.ListProgressTimeout)
	defer timer.Stop()
	for {
		e, err := st.buffered()
		switch {
		case e != nil:
			if end, err = s.stage(e, l, end); err != nil {
				return nil, err
			}
		case err == io.EOF && end != nil:
			return end, nil
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return nil, &ProtocolError{What: "list is cut", Err: io.ErrUnexpectedEOF}
		case err != nil:
			return nil, err
		default:
			if err := s.await(ctx, st, timer, s.src.cfg.ListProgressTimeout); err != nil {
				return nil, err
			}
		}
	}
}

// stage takes one event of a list.
func (s *scope) stage(e *event, l *listing, end *listMeta) (*listMeta, error) {
	switch e.kind {
	case evOpened:
		s.contact()
		s.listing()
	case evListEnd:
		if err := s.checkList(e.list.kind, e.list.apiVersion); err != nil {
			return nil, err
		}
		s.contact()
		return e.list, nil
	case evObject:
		l.count++
		if !s.listedElsewhere(l, e) {
			s.put(l, e)
		}
	}
	return end, nil
}

func (s *scope) put(l *listing, e *event) {
	err := e.err
	if err == nil {
		err = s.checkKind(&e.obj)
	}
	if err == nil {
		err = l.Put(&e.obj)
	}
	if err != nil {
		if len(e.obj.Header.Name) == 0 {
			l.nameless++
		}
		s.quarantine(&e.obj, err)
	}
}

// listing reports that a list is coming in, unless something is wrong: that is over when the list is complete.
func (s *scope) listing() {
	if phase := s.phase(); phase == Connecting || phase == Watching {
		s.report(Listing, ReasonListing, nil)
	}
}

// await waits for the next batch of a stream, and gives up when the stream makes no progress for so long.
func (s *scope) await(ctx context.Context, st *stream, timer *time.Timer, patience time.Duration) error {
	heard, err := s.hears(ctx, st, timer, patience)
	if err == nil && !heard {
		s.abandon(st)
		return ErrStalled
	}
	return err
}

// hears waits for the next batch of a stream; it returns false when the stream makes no progress for so long.
func (s *scope) hears(ctx context.Context, st *stream, timer *time.Timer, patience time.Duration) (bool, error) {
	timer.Reset(patience)
	for {
		select {
		case b := <-st.out:
			st.receive(b)
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-timer.C:
			idle := st.idle()
			if idle >= patience {
				return false, nil
			}
			timer.Reset(patience - idle)
		}
	}
}

// abandon makes the next request take another connection than this stream.
func (s *scope) abandon(st *stream) {
	if g := st.generation.Load(); g != nil {
		s.src.client.abandon(g)
	}
}

// reconnect makes the next request take another connection than the last one of this scope.
func (s *scope) reconnect() {
	if g := s.used.Load(); g != nil {
		s.src.client.abandon(g)
	}
}
