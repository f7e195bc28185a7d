package source

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/fairlead-io/fairlead/internal/protect"
	"github.com/fairlead-io/fairlead/internal/resourceversion"
)

// recoveredAfter is how long a watch must stay open before the scope counts as recovered. An event ends the wait early.
const recoveredAfter = time.Second

// stableAfter is how long a watch must stay open before earlier faults are forgotten. An earlier event only resets the
// back-off (history.progress).
const stableAfter = 10 * time.Second

// watchProgress receives the progress of a watch. progress implements it and publishes the state. No call is for each
// event.
type watchProgress interface {
	contact()     // useful responses arrived
	watchOpened() // the server sends the watch
	firstEvent()  // the watch has delivered its first event
	watchWorks()  // the watch works
	stayedOpen()  // the watch stayed open for a while
	caughtUp()    // the content of an earlier run is up to date
	requestList() // a list must follow the watch
}

// watcher passes the changes after a position to the sink. The goroutine of the scope owns it. While that goroutine
// waits, the reader of the stream uses the watcher and its parts.
type watcher struct {
	cfg        *Config
	log        *slog.Logger
	open       openFunc
	sink       Sink
	counts     *Counters
	pos        *position
	kinds      *kindCheck
	filter     *slotFilter
	prober     *prober
	resume     *resumption
	quarantine *quarantine
	progress   watchProgress

	garbageAt         string // version after which a frame was unreadable
	nextGarbageRelist time.Time
}

// watching is one open watch.
type watching struct {
	*stream
	opened time.Time // zero: the server has not answered yet
	frames int       // events and bookmarks
	last   time.Time // of the last batch
}

// watch receives the changes after the position, on st or on a new stream, until an error or the end of the stream.
func (w *watcher) watch(ctx context.Context, st *stream) error {
	open := &watching{stream: st, last: time.Now()}
	asked, limit := w.lifetime()
	w.pos.prepareWatch()
	if st != nil {
		w.opened(open)
	} else {
		var err error
		q := query{watch: true, version: string(w.pos.version()), timeout: asked}
		if open.stream, err = w.open(ctx, q); err != nil {
			return err
		}
		open.last = time.Now()
	}
	defer func() {
		open.close()
		if !open.opened.IsZero() && time.Since(open.opened) > stableAfter {
			w.progress.stayedOpen()
		}
	}()
	return w.receive(ctx, open, limit)
}

// lifetime returns the timeout to request for a watch and the limit after which the client closes it.
func (w *watcher) lifetime() (asked, limit time.Duration) {
	if w.resume.isDue() {
		return w.resume.lifetime()
	}
	return w.cfg.watchTimeout(), w.cfg.MaxWatch
}

// receive processes the events of an open watch until limit.
func (w *watcher) receive(ctx context.Context, open *watching, limit time.Duration) error {
	budget := w.cfg.SilenceBudget
	due := watchTimers{time.NewTimer(limit), time.NewTimer(recoveredAfter), time.NewTimer(budget)}
	defer due.stop()
	received := false // since the last contact
	for {
		e, err := open.buffered()
		if e != nil {
			if err := w.event(ctx, open, e); err != nil {
				return err
			}
			continue
		}
		if received {
			received = false
			w.progress.contact()
		}
		if p, ok := err.(*protect.Panic); ok {
			panic(p) // of handle, on the goroutine of the reader
		}
		if err != nil {
			return w.ended(open, err)
		}
		b, wake := w.wait(ctx, open, &due)
		switch wake {
		case wokeByBatch:
			if open.receive(b) { // an end or an error alone does not confirm the content
				open.last = time.Now()
				received = true
			}
		case wokeByEnd:
			return context.Cause(ctx)
		case wokeByLifetime:
			if open.isWithinEvent() {
				return fmt.Errorf("event is not complete at the end of a watch of %v: %w", limit, ErrStalled)
			}
			w.recovered(open)
			return errLifetime
		case wokeByRecovery:
			w.recovered(open)
		case wokeBySilence:
			quiet := time.Since(open.last)
			if open.isWithinEvent() {
				quiet = open.idle() // a large event may take long while bytes arrive
			}
			if quiet < budget {
				due.silence.Reset(budget - quiet)
				continue
			}
			if err := w.prober.silent(ctx, open.stream, !open.opened.IsZero()); err != nil {
				return err
			}
			due.silence.Reset(budget)
		}
	}
}

// watchTimers are the timers of an open watch.
type watchTimers struct{ lifetime, recovery, silence *time.Timer }

func (t *watchTimers) stop() {
	t.lifetime.Stop()
	t.recovery.Stop()
	t.silence.Stop()
}

// wakeReason is why the goroutine of a scope with an open watch has to do something.
type wakeReason uint8

const (
	wokeByBatch wakeReason = iota
	wokeByEnd              // of the context
	wokeByLifetime
	wokeByRecovery
	wokeBySilence
)

// wait waits until the goroutine of the scope has to do something. Meanwhile the reader of the stream handles events.
func (w *watcher) wait(ctx context.Context, open *watching, due *watchTimers) (*batch, wakeReason) {
	open.lend(func(b *batch) error { return w.handle(ctx, open, b) })
	defer open.takeBack()
	select {
	case b := <-open.batches():
		return b, wokeByBatch
	case <-ctx.Done():
		return nil, wokeByEnd
	case <-due.lifetime.C:
		return nil, wokeByLifetime
	case <-due.recovery.C:
		return nil, wokeByRecovery
	case <-due.silence.C:
		return nil, wokeBySilence
	}
}

// handle processes a batch of events while the goroutine of the scope waits.
func (w *watcher) handle(ctx context.Context, open *watching, b *batch) error {
	open.last = time.Now()
	for i := range b.events[:b.n] {
		if err := w.event(ctx, open, &b.events[i]); err != nil {
			return err
		}
	}
	w.progress.contact()
	return nil
}

func (w *watcher) opened(open *watching) {
	open.opened = time.Now()
	w.progress.contact() // before the report, which then has the new LastContact
	w.progress.watchOpened()
}

// recovered reports a working watch, unless its content may be that of an earlier run.
func (w *watcher) recovered(open *watching) {
	if !open.opened.IsZero() && !w.resume.isDue() {
		w.progress.watchWorks()
	}
}

// ended returns the error for the end of a stream.
func (w *watcher) ended(open *watching, err error) error {
	if err != io.EOF {
		return err
	}
	lived := time.Since(open.opened)
	if !open.isDue() {
		switch {
		case open.frames == 0 && lived < quickEnd:
			return ErrEnded
		case lived < time.Second:
			return errEndedSoon
		}
	}
	w.recovered(open)
	return errEnded
}

// event processes one event of a watch.
func (w *watcher) event(ctx context.Context, open *watching, e *event) error {
	switch e.kind {
	case evOpened:
		w.counts.Watches++
		w.opened(open)
		return w.readTarget(ctx)
	case evError:
		return e.err
	case evGarbage:
		return w.garbage(ctx, open, e)
	case evBookmark:
		return w.bookmark(ctx, open, e)
	case evObject:
		return w.change(ctx, open, e)
	}
	return nil
}

// readTarget reads the version that a resumed scope must reach. The watch is already open, so no later change is
// missed. On failure the watch continues, and a list follows later.
func (w *watcher) readTarget(ctx context.Context) error {
	if !w.resume.needsTarget() {
		return nil
	}
	version, err := w.prober.version(ctx)
	if err != nil {
		w.log.InfoContext(ctx, "cannot ask how far to catch up", "error", err)
		return nil
	}
	if w.pos.isAfter(version) {
		return errRolledBack
	}
	w.resume.setTarget(version)
	w.checkResumed()
	return nil
}

// checkResumed ends the resumption when the watch has reached the target version.
func (w *watcher) checkResumed() {
	if w.resume.isReached(w.pos) {
		w.progress.caughtUp()
	}
}

func (w *watcher) change(ctx context.Context, open *watching, e *event) error {
	version := e.obj.Header.ResourceVersion
	if w.filter.dropsChange(e) {
		w.advance(open, version)
		return nil
	}
	if err := w.kinds.object(&e.obj); err != nil {
		return err
	}
	e.deletionNeedsNoContent()
	delivery, older := w.pos.classify(e.change, &e.obj, e.err == nil)
	switch delivery {
	case deliverOldDeletion:
		w.deliver(e)
		w.progressed(open)
	case replayed:
		w.counts.Suppressed++
	case alreadyListed:
		w.counts.Suppressed++
		w.pos.record(e.change, &e.obj)
		w.advance(open, version)
	default:
		if e.err == nil && e.change != Deleted && !noVersion(version) && foreign(version, w.pos.version()) {
			e.err = &ProtocolError{
				What:    "version " + string(version) + " where versions are numbers",
				Excerpt: w.cfg.excerpt(e.obj.Raw),
			}
		}
		w.deliver(e)
		w.advance(open, version)
	}
	if older {
		return w.prober.suspect(ctx)
	}
	return nil
}

// deliver passes a change to the sink, or to the quarantine.
func (w *watcher) deliver(e *event) {
	if e.err == nil {
		e.err = w.sink.Apply(e.change, &e.obj)
	}
	if e.err != nil {
		w.quarantine.add(&e.obj, e.err)
	} else {
		w.counts.Events++
	}
	w.pos.record(e.change, &e.obj)
}

func (w *watcher) bookmark(ctx context.Context, open *watching, e *event) error {
	version := e.obj.Header.ResourceVersion
	seen := w.pos.version()
	if noVersion(version) || foreign(version, seen) {
		return nil
	}
	if resourceversion.Older(version, seen) {
		w.counts.Suppressed++
		return w.prober.suspect(ctx)
	}
	w.counts.Bookmarks++
	w.sink.Bookmark(string(version))
	w.advance(open, version)
	return nil
}

// advance moves the position to the version of an event.
func (w *watcher) advance(open *watching, version []byte) {
	w.pos.advance(version)
	w.prober.progressed()
	w.progressed(open)
	w.checkResumed()
}

// progressed counts an event. The first one ends earlier faults.
func (w *watcher) progressed(open *watching) {
	open.frames++
	if open.frames == 1 {
		w.progress.firstEvent()
		w.recovered(open)
	}
}

// garbage handles an unreadable frame. On its first occurrence the watch is resumed to fetch it again. On its second, a
// deletion with a name is applied. Any other frame is quarantined. Unless it names an added or modified object, a list
// must follow: now if the last such list is older than the silence budget, else when the watch ends.
func (w *watcher) garbage(ctx context.Context, open *watching, e *event) error {
	unreadable := &ProtocolError{What: "malformed watch event", Excerpt: w.cfg.excerpt(e.obj.Raw), Err: e.err}
	if w.garbageAt != string(w.pos.version()) {
		w.garbageAt = string(w.pos.version())
		return unreadable
	}
	named := len(e.obj.Header.Name) > 0
	if e.change == Deleted && named && !noVersion(e.obj.Header.ResourceVersion) {
		return w.change(ctx, open, e)
	}
	w.quarantine.add(&e.obj, e.err)
	if named && (e.change == Added || e.change == Modified) {
		return nil
	}
	w.progress.requestList()
	if now := time.Now(); !now.Before(w.nextGarbageRelist) {
		w.nextGarbageRelist = now.Add(w.cfg.SilenceBudget)
		return unreadable
	}
	return nil
}
