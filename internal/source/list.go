package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/fairlead-io/fairlead/internal/resourceversion"
	"github.com/fairlead-io/fairlead/shard"
)

// restarts is the number of attempts of a list whose continue token expires. The last attempt requests everything in
// one page.
const restarts = 3

// listProgress receives the progress of a list. progress implements it and publishes the state.
type listProgress interface {
	contact()                               // a useful response arrived
	listStarted()                           // a list of everything begins
	listOpened()                            // the server sends the list
	listSynced()                            // the content is complete
	degraded(reason Reason, err error)      // requests fail
	repairing(reason Reason, err error)     // the list is repeated in another way
	retrying(wait time.Duration, err error) // a page is requested again
}

// lister fetches the content of a scope and commits it to the sink. It decides whether a list is complete and
// plausible. The goroutine of the scope owns it.
type lister struct {
	cfg       *Config
	log       *slog.Logger
	open      openFunc
	reconnect func()
	counts    *Counters
	pos       *position
	kinds     *kindCheck
	filter    *slotFilter
	names     *namespaces
	prober    *prober
	stager    *stager
	pager     *pager
	initial   *initialEvents
	progress  listProgress

	estimates bool // remainingItemCount is not exact
}

// sync fetches the content from the server and commits it. It moves the position to the version of the list, except for
// a list of gained slots. If it used a watch with initial events, it returns the open stream.
func (l *lister) sync(ctx context.Context, of listOf) (_ *stream, err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			l.counts.ListErrors++
		}
	}()
	unselected := of.gained != nil && l.filter.hasDropped(true)
	if !unselected && l.initial.isUsable() {
		st, err := l.watchList(ctx, of)
		var c *confirmation
		switch {
		case err == nil:
			l.initial.succeeded()
			return st, nil
		case errors.As(err, &c):
			return nil, l.confirm(ctx, of, c)
		case !l.initial.fallsBack(ctx, err):
			return nil, err
		}
	}
	err = l.list(ctx, of, nil)
	if c, ok := errors.AsType[*confirmation](err); ok {
		err = l.confirm(ctx, of, c)
	}
	return nil, err
}

// confirm lists again, consistently and over a new connection, before many objects are deleted.
func (l *lister) confirm(ctx context.Context, of listOf, c *confirmation) error {
	l.log.WarnContext(ctx, "list would delete many objects, asking again", "missing", c.missing, "known", c.known,
		"listed", c.listed)
	l.progress.repairing(reasonFor(c), c)
	l.reconnect()
	of.consistent = true
	err := l.list(ctx, of, c)
	if _, again := errors.AsType[*confirmation](err); again {
		return ErrImplausible
	}
	return err
}

// watchList fetches the content as the initial events of a watch and commits it. The caller continues to use the
// returned stream as the watch.
func (l *lister) watchList(ctx context.Context, of listOf) (_ *stream, err error) {
	q := query{
		watch: true, sendInitialEvents: true, match: notOlderThan, timeout: l.cfg.watchTimeout(), slots: of.gained,
	}
	if !of.consistent {
		q.version = string(l.pos.version())
	}
	st, err := l.open(ctx, q)
	if err != nil {
		return nil, err
	}
	list := l.begin(of, nil)
	ended := l.names.startList()
	defer func() {
		list.close()
		ended(err)
		if err != nil {
			st.close()
		}
	}()
	if err := l.initial.receive(ctx, st, list); err != nil {
		return nil, err
	}
	return st, l.accept(ctx, list)
}

func (l *lister) begin(of listOf, confirms *confirmation) *listing {
	if of.gained == nil {
		l.progress.listStarted()
	}
	return l.stager.begin(of, confirms)
}

// list fetches the content page by page and commits it.
func (l *lister) list(ctx context.Context, of listOf, confirms *confirmation) error {
	for n := 1; ; n++ {
		err := l.listOnce(ctx, of, confirms, n == restarts)
		if !errors.Is(err, errTokenExpired) || n == restarts {
			return err
		}
		l.log.InfoContext(ctx, "continue token has expired, listing from the beginning", "error", err)
		l.progress.repairing(ReasonExpired, err)
	}
}

func (l *lister) listOnce(ctx context.Context, of listOf, confirms *confirmation, whole bool) (err error) {
	q := query{slots: of.gained}
	if !whole {
		q.limit = max(0, l.cfg.PageSize)
	}
	list := l.begin(of, confirms)
	defer list.close()
	if of.gained != nil && !whole && confirms == nil {
		if list.only, err = l.snapshot(ctx, of.gained); err != nil {
			return err
		}
	}
	if list.only == nil {
		if !of.consistent {
			q.version, q.match = string(l.pos.version()), notOlderThan
		}
		ended := l.names.startList()
		defer func() { ended(err) }()
		if err := l.pager.fetch(ctx, q, list); err != nil {
			return err
		}
		return l.accept(ctx, list)
	}
	list.version, q.version, q.match = list.only.version, list.only.version, exactly
	q.slots = new(of.gained.Layout().All())
	for _, q.namespace = range slices.Sorted(maps.Keys(list.only.names)) {
		if err := l.pager.fetch(ctx, q, list); err != nil {
			if refusesExactly(err) {
				l.names.rejected()
				return errors.Join(errTokenExpired, err) // the next attempt lists everything
			}
			return err
		}
	}
	return l.accept(ctx, list)
}

// snapshot returns the namespaces of the gained slots, or nil if all slots must be listed.
func (l *lister) snapshot(ctx context.Context, slots *shard.Set) (*snapshot, error) {
	if !l.filter.hasDropped(false) || !l.names.mayHelp(l.cfg.PageSize) {
		return nil, nil
	}
	version, err := l.prober.version(ctx)
	if err != nil {
		return nil, err
	}
	names, err := l.names.existing(slots, func(q query, object func(*Object)) (listMeta, error) {
		return readObjects(ctx, l.open, q, l.cfg.ListProgressTimeout, object)
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		l.names.rejected()
		l.log.InfoContext(ctx, "cannot list the namespaces of slots, listing everything", "error", err)
		return nil, nil
	case names == nil, l.names.areTooMany(len(names)):
		return nil, nil
	}
	return &snapshot{version, names}, nil
}

// accept commits a complete list if it passes the checks for stale and implausible content.
func (l *lister) accept(ctx context.Context, list *listing) error {
	if list.gained != nil {
		return l.acceptGained(list)
	}
	epoch, err := l.isRolledBack(ctx, list)
	if err != nil {
		return err
	}
	if c := l.doubt(list); c != nil {
		return c
	}
	reason := list.reason
	if epoch {
		reason = fmt.Sprintf("history was rolled back from version %s to %s", l.pos.version(), list.version)
		l.log.WarnContext(ctx, "history was rolled back", "from", string(l.pos.version()), "to", list.version)
		l.counts.Epochs++
	}
	l.names.listedAll(list.count)
	l.pos.complete(list.version)
	list.commit(Commit{Version: list.version, Epoch: epoch, Reason: reason})
	l.counts.Lists++
	l.kinds.confirm()
	l.prober.forget()
	l.progress.listSynced()
	l.progress.contact()
	return nil
}

// isRolledBack reports whether a list proves that the history of the server went back. It returns ErrStale for an older
// list that does not.
func (l *lister) isRolledBack(ctx context.Context, list *listing) (bool, error) {
	if !l.pos.isAfter(list.version) {
		return false, nil
	}
	if !list.consistent {
		return false, fmt.Errorf("list at version %s, known is %s: %w", list.version, l.pos.version(), ErrStale)
	}
	// This is the second of two consistent reads. A single one may come from a lagging replica.
	second, err := l.prober.versionElsewhere(ctx)
	if err != nil {
		return false, err
	}
	if !l.pos.isAfter(second) || resourceversion.Older(second, list.version) {
		return false, fmt.Errorf("list at version %s, known is %s, then %s: %w", list.version, l.pos.version(), second,
			ErrStale)
	}
	return true, nil
}

// acceptGained commits a complete list of gained slots.
func (l *lister) acceptGained(list *listing) error {
	order, comparable := resourceversion.Compare(list.version, l.pos.version())
	switch {
	case !comparable:
		return errUnordered
	case order < 0:
		return fmt.Errorf("list of slots at version %s, known is %s: %w", list.version, l.pos.version(), errRolledBack)
	}
	if c := l.doubt(list); c != nil {
		return c
	}
	l.filter.listed(*list.gained)
	list.commit(Commit{Version: list.version, Reason: "slots have come"})
	l.pos.addGain(gain{*list.gained, list.version, list.only})
	l.counts.Lists++
	l.progress.contact()
	l.filter.publish()
	return nil
}

func (l *lister) doubt(list *listing) (c *confirmation) {
	c, l.estimates = list.doubt(l.cfg, l.estimates)
	return c
}
