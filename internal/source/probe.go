package source

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// prober reads the version of the server and decides what it means for a watch. The goroutine of the scope owns it.
type prober struct {
	cfg       *Config
	log       *slog.Logger
	open      openFunc
	reconnect func()
	contact   func() // called after each response
	counts    *Counters
	kinds     *kindCheck
	pos       *position

	pending          string    // server version that a silent watch has not reached; "": none
	nextSuspicion    time.Time // earliest next probe after an older version
	nextSilentRelist time.Time
	silentRelistGap  time.Duration
}

// version returns the version of the server, from a consistent list of one object.
func (p *prober) version(ctx context.Context) (string, error) {
	m, err := p.list(ctx)
	return m.version, err
}

// versionElsewhere is version over a new connection, which may lead to another replica.
func (p *prober) versionElsewhere(ctx context.Context) (string, error) {
	p.reconnect()
	return p.version(ctx)
}

// probed is the result of a list of one object.
type probed struct {
	listMeta
	count int
}

// limit bounds the time of a probe from its request to the end of its answer: ListProgressTimeout for the first byte,
// and as much again for the rest. The watch is not read meanwhile, so an answer that trickles must not take longer. The
// wait for the Limiter does not count, as for every request.
func (p *prober) limit() time.Duration { return 2 * p.cfg.ListProgressTimeout }

// list lists one object, consistently. It returns ErrStalled if the answer is not complete within the limit.
func (p *prober) list(ctx context.Context) (m probed, err error) {
	p.counts.Probes++
	st, err := p.open(ctx, query{limit: 1})
	if err != nil {
		return probed{}, err
	}
	defer st.close()
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit(),
		fmt.Errorf("no complete answer to a list of one object within %v: %w", p.limit(), ErrStalled))
	defer cancel()
	err = st.readList(ctx, p.cfg.ListProgressTimeout, func(e *event) (bool, error) {
		switch e.kind {
		case evListEnd:
			if err := p.kinds.list(e.list.kind, e.list.apiVersion); err != nil {
				return false, err
			}
			p.contact()
			m.listMeta = *e.list
			return true, nil
		case evObject:
			m.count++
		}
		return false, nil
	})
	return m, err
}

// progressed records that the watch has advanced.
func (p *prober) progressed() {
	if p.pending != "" && p.pos.hasReached(p.pending) {
		p.pending = ""
	}
	p.silentRelistGap = 0
}

// forget drops the version that a silent watch has not reached, because a list follows or was applied.
func (p *prober) forget() { p.pending = "" }

// silent handles a watch without events for the silence budget. A server whose version is unchanged is idle, and the
// watch continues. A version that advanced may be due to other resources. The scope then resumes the watch once. If
// that still does not reach the server's version, the scope lists again, at growing intervals.
func (p *prober) silent(ctx context.Context, st *stream, answered bool) error {
	switch budget := p.cfg.SilenceBudget; {
	case !answered:
		st.abandon()
		return fmt.Errorf("no answer to a watch for %v: %w", budget, ErrStalled)
	case st.isWithinEvent():
		st.abandon()
		return fmt.Errorf("no byte for %v in the middle of an event: %w", budget, ErrStalled)
	case p.pending != "":
		if time.Now().Before(p.nextSilentRelist) {
			return nil
		}
		p.silentRelistGap = min(max(2*p.silentRelistGap, budget), 16*budget)
		p.nextSilentRelist = time.Now().Add(p.silentRelistGap)
		st.abandon()
		return fmt.Errorf("server has reached version %s, known is %s: %w", p.pending, p.pos.version(), ErrSilent)
	}
	version, err := p.version(ctx)
	switch {
	case st.hasBatch():
		return nil // events arrived in the meantime, so the watch works even if the probe failed
	case err != nil:
		st.abandon()
		return err
	case version == string(p.pos.version()):
		return nil
	case p.pos.isAfter(version):
		return errRolledBack
	}
	p.log.InfoContext(ctx, "watch is silent while the server moves on", "version", string(p.pos.version()),
		"server", version)
	p.pending = version
	st.abandon()
	return fmt.Errorf("server has reached version %s, known is %s: %w", version, p.pos.version(), errResume)
}

// suspect checks whether an older version in the stream means that history was rolled back. It probes at most once per
// silence budget.
func (p *prober) suspect(ctx context.Context) error {
	now := time.Now()
	if now.Before(p.nextSuspicion) {
		return nil
	}
	p.nextSuspicion = now.Add(p.cfg.SilenceBudget)
	return p.checkHistory(ctx)
}

// checkHistory returns errRolledBack if the version of the server is below the version seen.
func (p *prober) checkHistory(ctx context.Context) error {
	version, err := p.version(ctx)
	if err == nil && resourceversion.Older(version, p.pos.version()) {
		err = errRolledBack
	}
	return err
}
