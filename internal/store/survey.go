package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
)

// Surveys end waits on a quiet watch. The server's version moves with every write to any resource. A watch tells its
// version only with its own events, and with a bookmark about once a minute. So a survey settles a wait that the watch
// does not end soon: one consistent list of the scope's metadata is compared with the store. The watch brings changes
// in the order of their versions. Therefore, if the store has exactly the listed objects in their versions, it misses
// no change up to the version of the list, and the scope has reached that version. Otherwise the comparison is repeated
// with each change of the watch.
//
// One survey at a time serves all waiters. The next one begins at least a second later, and not before the watch has
// brought the objects of the last one.

const (
	surveyEvery  = time.Second
	surveyRarely = 8 * time.Second // if surveys fail, or the awaited version does not exist yet
	// maxMissing is the number of differences that a survey remembers. With more of them the watch is far behind, and
	// another list is made later.
	maxMissing = 10_000
)

// surveys is the state of the surveys of one scope. Store.mu guards it.
type surveys struct {
	by      *source.Surveyor // nil: no source fills the scope yet
	running bool             // the goroutine of settle runs
	stop    context.CancelFunc
	poke    chan struct{} // signals a new waiter

	last    time.Time // when the last one began; zero: there was none
	reached uint64    // number of the last one that the scope has reached
	lists   int       // replacements so far: a survey from before one does not count
	futile  int       // consecutive surveys that did not help
	err     error     // of the last one
	open    *survey   // the survey that the scope has not reached yet
}

// survey is the result of one list. Store.mu guards it, except listed, missing and hopeless until it is complete.
type survey struct {
	number   uint64
	clock    uint64 // of the overlay: the list sees every write answered before
	lists    int
	ver      version
	complete bool
	hopeless bool // more than maxMissing objects differ
	listed   int
	missing  []listed      // the store lacks them, or has an older version
	unread   []Key         // objects of missing that are quarantined
	over     chan struct{} // closed when the scope has reached it, or it is obsolete
}

type listed struct {
	key Key
	uid types.UID
	ver version
}

// Survey implements source.Surveyed.
func (sc *scope) Survey(by *source.Surveyor) {
	s := sc.s
	s.mu.Lock()
	defer s.mu.Unlock()
	sc.surveys.by = by
	sc.attend()
}

// attend starts or wakes the goroutine of settle, if a waiter of the scope needs a survey. The caller holds s.mu.
func (sc *scope) attend() {
	s, v := sc.s, &sc.surveys
	if v.running {
		select {
		case v.poke <- struct{}{}:
		default:
		}
		return
	}
	if _, needed := sc.nextSurvey(time.Now()); !needed {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	v.running, v.stop, v.poke = true, stop, make(chan struct{}, 1)
	s.surveying.Go(func() {
		defer stop()
		sc.settle(ctx, v.poke)
	})
}

// nextSurvey returns the delay until the next survey. needed is false if no waiter needs one. The caller holds s.mu.
func (sc *scope) nextSurvey(now time.Time) (in time.Duration, needed bool) {
	v := &sc.surveys
	if v.by == nil || !sc.committed || !sc.whole() || sc.dropped || sc.s.closed || v.open != nil {
		return 0, false
	}
	var at time.Time
	for _, w := range sc.s.waiters {
		if w.asksOf(sc) && !sc.has(w) && (!needed || w.patient.Before(at)) {
			at, needed = w.patient, true
		}
	}
	if !v.last.IsZero() {
		if next := v.last.Add(min(surveyEvery<<min(v.futile, 10), surveyRarely)); next.After(at) {
			at = next
		}
	}
	return at.Sub(now), needed
}

// settle makes surveys while they are needed.
func (sc *scope) settle(ctx context.Context, poke <-chan struct{}) {
	s, v := sc.s, &sc.surveys
	for {
		s.mu.Lock()
		in, needed := sc.nextSurvey(time.Now())
		if !needed || ctx.Err() != nil {
			v.running = false
			s.mu.Unlock()
			return
		}
		if in > 0 {
			s.mu.Unlock()
			timer := time.NewTimer(in)
			select {
			case <-timer.C:
			case <-poke:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		s.surveyed++
		v.last = time.Now()
		by, y := v.by, &survey{number: s.surveyed, clock: s.overlay.tick(), lists: v.lists, over: make(chan struct{})}
		s.mu.Unlock()
		err := by.List(ctx, func(h *source.Header) { y.see(s, h) }, func(version string, more bool) error {
			return sc.page(ctx, y, version, more)
		})
		s.mu.Lock()
		sc.endSurvey(y, err)
		failed := v.err
		s.mu.Unlock()
		if failed != nil {
			s.logger.DebugContext(ctx, "cannot ask the server what there is", "namespace", sc.ns, "error", failed)
		}
	}
}

// see compares one listed object with the store. The store only moves forward meanwhile, so an object that matches now
// stays at least as new as the list.
func (y *survey) see(s *Store, h *source.Header) {
	y.listed++
	if y.hopeless {
		return
	}
	want := listed{ver: parseVersion(h.ResourceVersion), uid: types.UID(h.UID)}
	have, ok := s.root.Load().base.find(s.intern, h)
	if ok && want.is(have) {
		return
	}
	if len(y.missing) == maxMissing {
		y.hopeless, y.missing = true, nil
		return
	}
	want.key = Key{Namespace: string(h.Namespace), Name: string(h.Name)}
	y.missing = append(y.missing, want)
}

// is reports whether a record is the listed version, or newer.
func (l *listed) is(r *Record) bool {
	return r.ver.equal(l.ver) && r.id.hasUID([]byte(l.uid)) || r.ver.newer(l.ver)
}

// errEnough ends a survey whose remaining pages are not needed.
var errEnough = errors.New("survey ended early")

// page is called at the end of each page.
func (sc *scope) page(ctx context.Context, y *survey, ver string, more bool) error {
	s, v := sc.s, &sc.surveys
	s.mu.Lock()
	first := y.ver.isZero()
	y.ver = parseVersion(ver)
	if sc.dropped || v.lists != y.lists || y.enough(false) != nil { // the watch may have caught up between two pages
		s.mu.Unlock()
		return errEnough
	}
	v.open, y.complete = y, !more
	s.notifyWaiters()
	alone := !slices.ContainsFunc(s.waiters, func(w *waiter) bool { return w.asksOf(sc) })
	s.mu.Unlock()
	if !first || !more {
		return y.enough(alone)
	}
	timer := time.NewTimer(waitPatience) // the watch may catch up soon, which saves the other pages
	defer timer.Stop()
	select {
	case <-y.over:
	case <-timer.C:
	case <-ctx.Done():
	}
	return y.enough(alone)
}

func (y *survey) enough(alone bool) error {
	select {
	case <-y.over:
		return errEnough
	default:
	}
	if alone {
		return errEnough
	}
	return nil
}

// endSurvey records the end of a survey. The caller holds s.mu.
func (sc *scope) endSurvey(y *survey, err error) {
	s, v := sc.s, &sc.surveys
	if errors.Is(err, errEnough) {
		err = nil
	}
	if v.open == y && (!y.complete || y.hopeless) { // it tells the version to reach, but not when that is reached
		sc.forget()
	}
	v.futile++
	future := func(w *waiter) bool { return w.asksOf(sc) && w.since < y.number && w.ver.newer(y.ver) }
	if v.err = err; err == nil && !y.hopeless && !slices.ContainsFunc(s.waiters, future) {
		v.futile = 0
	}
	if err == nil {
		return
	}
	if api, ok := errors.AsType[*source.APIError](err); ok && api.Code < 500 && api.Code != 410 && api.Code != 429 {
		s.waiters.end(err, func(w *waiter) bool { return w.barrier && w.concerns(sc) && w.since < y.number })
	}
}

// checkSurvey ends the open survey if the scope has reached it; the caller holds s.mu.
func (sc *scope) checkSurvey() {
	v := &sc.surveys
	y := v.open
	if y == nil {
		return
	}
	if !sc.version.atLeast(y.ver) {
		if !y.complete || y.hopeless || !sc.shows(y) {
			return
		}
		sc.advance(y.ver)
		sc.settleOverlay(y)
	}
	v.reached = y.number
	sc.forget()
}

// settleOverlay drops the own writes that the survey is newer than, as a list does. An object that was created and
// deleted since was never in the base, and the watch will not mention it any more. The caller holds s.mu.
func (sc *scope) settleOverlay(y *survey) {
	s := sc.s
	if len(s.overlay.entries) == 0 {
		return
	}
	base := s.root.Load().base
	var batch []change
	for _, g := range s.overlay.listed(s, sc, nil, y.clock, y.ver, base, base) {
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: g})
	}
	wake := s.publish(root{base: base, merged: s.overlay.rebuild(s, base)}, batch)
	if len(batch) > 0 && !s.closed {
		s.surveying.Go(wake) // not under the lock
	}
}

// forget ends the open survey. Waiters may need another one. The caller holds s.mu.
func (sc *scope) forget() {
	if v := &sc.surveys; v.open != nil {
		close(v.open.over)
		v.open = nil
		sc.attend()
	}
}

// endSurveys ends the open survey and the goroutine of settle. The caller holds s.mu.
func (sc *scope) endSurveys() {
	sc.forget()
	if sc.surveys.running {
		sc.surveys.stop()
	}
}

// shows reports whether the scope has exactly the listed objects. The caller holds s.mu.
func (sc *scope) shows(y *survey) bool {
	s, base := sc.s, sc.s.root.Load().base
	get := func(k Key) (*Record, bool) { return base.get(s.intern.hashKey(k.Namespace, k.Name), k) }
	for n := len(y.missing); n > 0; n-- {
		want := &y.missing[n-1]
		if have, ok := get(want.key); !ok || !want.is(have) {
			if q, unread := sc.quarantine[want.key]; !unread || q.Version != want.ver.String() {
				return false
			}
			y.unread = append(y.unread, want.key)
		}
		y.missing = y.missing[:n-1]
	}
	have := sc.count()
	for _, k := range y.unread {
		if _, ok := get(k); !ok {
			have++
		}
	}
	return have == y.listed
}
