package source

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// probe returns what the server has, from a consistent list of one object. A new connection, if
// requested, may lead to another replica.
func (s *scope) probe(ctx context.Context, anew bool) (version string, err error) {
	if anew {
		s.reconnect()
	}
	m, err := s.probeList(ctx)
	if err != nil {
		return "", err
	}
	return m.version, nil
}

// probed is the result of a list of one object.
type probed struct {
	listMeta
	count int
}

func (s *scope) probeList(ctx context.Context) (m probed, err error) {
	s.count.Probes++
	st, err := s.open(ctx, query{limit: 1})
	if err != nil {
		return m, err
	}
	defer st.close()
	timer := time.NewTimer(s.src.cfg.ListProgressTimeout)
	defer timer.Stop()
	for {
		e, err := st.buffered()
		switch {
		case e != nil && e.kind == evListEnd:
			if err := s.checkList(e.list.kind, e.list.apiVersion); err != nil {
				return m, err
			}
			s.contact()
			m.listMeta = *e.list
			return m, nil
		case e != nil:
			if e.kind == evObject {
				m.count++
			}
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return m, &ProtocolError{What: "list is cut", Err: io.ErrUnexpectedEOF}
		case err != nil:
			return m, err
		default:
			if err := s.await(ctx, st, timer, s.src.cfg.ListProgressTimeout); err != nil {
				return m, err
			}
		}
	}
}

// silent handles a watch without events for the silence budget. A server whose version is unchanged is idle, and the
// watch continues. A version that advanced may be due to other resources. The scope then resumes the watch once. If
// that still does not reach the server's version, the scope lists again, at growing intervals.
func (s *scope) silent(ctx context.Context, w *watching) error {
	switch {
	case w.opened.IsZero():
		s.abandon(w.stream)
		return fmt.Errorf("no answer to a watch for %v: %w", s.src.cfg.SilenceBudget, ErrStalled)
	case w.inside.Load():
		s.abandon(w.stream)
		return fmt.Errorf("no byte for %v in the middle of an event: %w", s.src.cfg.SilenceBudget, ErrStalled)
	}
	if s.pending != "" {
		if time.Now().Before(s.nextSilentRelist) {
			return nil
		}
		s.silentRelistGap = min(max(2*s.silentRelistGap, s.src.cfg.SilenceBudget), 16*s.src.cfg.SilenceBudget)
		s.nextSilentRelist = time.Now().Add(s.silentRelistGap)
		s.abandon(w.stream)
		return fmt.Errorf("server has reached version %s, known is %s: %w", s.pending, s.seen, ErrSilent)
	}
	version, err := s.probe(ctx, false)
	if err != nil {
		s.abandon(w.stream)
		return err
	}
	if len(w.out) > 0 {
		return nil // an event arrived in the meantime
	}
	order, comparable := resourceversion.Compare(version, s.seen)
	switch {
	case version == string(s.seen):
		return nil
	case comparable && order < 0:
		return errRolledBack
	}
	s.log.InfoContext(ctx, "watch is silent while the server moves on", "version", string(s.seen), "server", version)
	s.pending = version
	s.abandon(w.stream)
	return fmt.Errorf("server has reached version %s, known is %s: %w", version, s.seen, errResume)
}

// suspect checks whether an older version in the stream means that history was rolled back. It probes at most once per
// silence budget.
func (s *scope) suspect(ctx context.Context) error {
	now := time.Now()
	if now.Before(s.nextSuspicion) {
		return nil
	}
	s.nextSuspicion = now.Add(s.src.cfg.SilenceBudget)
	version, err := s.probe(ctx, false)
	if err != nil {
		return err
	}
	if resourceversion.Older(version, s.seen) {
		return errRolledBack
	}
	return nil
}
