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

// restarts is the number of attempts of a list whose continue token expires. The last attempt requests everything in
// one page.
const restarts = 3

// sync fetches the content from the server and commits it. It sets seen to the version of the list, except for a list
// of gained slots. If it used a watch with initial events, it returns the open stream.
func (s *scope) sync(ctx context.Context, of listOf) (*stream, error) {
	again := listOf{gained: of.gained}
	unselected := of.gained != nil && s.count.FilteredObjects+s.count.FilteredEvents > 0 // of watches, not of lists
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
		if why != s.fellBack { // log each reason once
			s.fellBack = why
			s.log.InfoContext(ctx, "server does not stream initial events, listing instead", "error", err)
		}
		if api, refused := errors.AsType[*APIError](err); !refused || api.Code >= http.StatusInternalServerError {
			s.report(Degraded, why, err) // a 4xx status only means that the server does not support it
		}
	}
	err := s.list(ctx, of, nil)
	if c, ok := errors.AsType[*confirmation](err); ok {
		err = s.confirm(ctx, again, c)
	}
	return nil, err
}

// confirm lists again, consistently and over a new connection, before many objects are deleted.
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

// listOf selects the content of a list: everything that is held, or the gained slots.
type listOf struct {
	consistent bool
	gained     *shard.Set
}

// list fetches the content page by page and commits it.
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

// errTokenExpired makes list start from the first page.
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
				return errors.Join(errTokenExpired, err) // the next attempt lists everything
			}
			return err
		}
	}
	return s.accept(ctx, l)
}

// pages fetches all pages of one query.
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
			l.version = m.version // later pages belong to the same snapshot
			if l.gained == nil && s.isWhole() {
				l.promised = l.count + int(m.remaining)
			}
		}
		l.gap = l.gap || l.count == before && (q.next != "" || m.next != "")
		if m.next == "" {
			return nil
		}
		if tokens[m.next] {
			return &ProtocolError{What: "list repeats a continue token"}
		}
		tokens[m.next] = true
		q.next, q.version, q.match = m.next, "", ""
	}
}

// pageTries bounds the retries of one page after the first. Retrying preserves the staged objects.
const pageTries = 3

// page fetches one page. It retries transient failures with the same continue token.
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
		s.log.InfoContext(ctx, "page of a list failed, retrying", "error", err, "wait", wait)
		s.count.Retries++
		s.triedAgain(wait)
		s.report(Degraded, reasonFor(err), err)
		_ = backoff.Pause(ctx, wait) // the next attempt reports a cancelled ctx
	}
}

// passing reports whether the failure is transient, so that the same request may soon succeed. A ProtocolError after
// objects were staged is not: they may not belong to the list.
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

// stage processes one event of a list.
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

// listing reports the phase Listing, unless the scope is degraded. A degraded scope recovers only when the list is
// complete.
func (s *scope) listing() {
	if phase := s.phase(); phase == Connecting || phase == Watching {
		s.report(Listing, ReasonListing, nil)
	}
}

// await waits for the next batch of a stream. If no byte arrives for patience, it abandons the connection and returns
// ErrStalled.
func (s *scope) await(ctx context.Context, st *stream, timer *time.Timer, patience time.Duration) error {
	heard, err := s.hears(ctx, st, timer, patience)
	if err == nil && !heard {
		s.abandon(st)
		return ErrStalled
	}
	return err
}

// hears waits for the next batch of a stream. It returns false if no byte arrives for patience.
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

// abandon retires the connection of this stream, so that the next request opens a new one.
func (s *scope) abandon(st *stream) {
	if g := st.generation.Load(); g != nil {
		s.src.conn.Abandon(g)
	}
}

// reconnect retires the connection of the last request of this scope.
func (s *scope) reconnect() {
	if g := s.used.Load(); g != nil {
		s.src.conn.Abandon(g)
	}
}
