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

// surveys makes the surveys of one scope. The writer lock guards it.
type surveys struct {
	cov   *coverage
	waits *waits

	by      *source.Surveyor // nil: no source fills the scope yet
	running bool             // the goroutine of loop runs
	stop    context.CancelFunc
	poke    chan struct{} // signals a new waiter

	last   time.Time // when the last one began; zero: there was none
	lists  int       // replacements so far: a survey from before one does not count
	futile int       // consecutive surveys that did not help
	err    error     // of the last one
	open   *survey   // the survey that the scope has not reached yet
}

// survey is the result of one list. The writer lock guards it, except listed, missing and hopeless until it is
// complete.
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

// fill tells that a source fills the scope from now on.
func (v *surveys) fill(by *source.Surveyor) {
	v.waits.pub.lock()
	defer v.waits.pub.unlock()
	v.by = by
	v.attend()
}

// attend starts or wakes the goroutine of loop, if a waiter of the scope needs a survey. The caller holds the writer
// lock.
func (v *surveys) attend() {
	s := v.waits
	if v.running {
		select {
		case v.poke <- struct{}{}:
		default:
		}
		return
	}
	if _, needed := v.next(time.Now()); !needed {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	v.running, v.stop, v.poke = true, stop, make(chan struct{}, 1)
	s.running.Go(func() {
		defer stop()
		v.loop(ctx, v.poke)
	})
}

// next returns the delay until the next survey. needed is false if no waiter needs one. The caller holds the writer
// lock.
func (v *surveys) next(now time.Time) (in time.Duration, needed bool) {
	s := v.waits
	if v.by == nil || !v.cov.committed || !v.cov.whole() || v.cov.dropped || s.pub.isClosed() || v.open != nil {
		return 0, false
	}
	var at time.Time
	for _, w := range s.waiters {
		if w.asksOf(v.cov) && !v.cov.has(w) && (!needed || w.patient.Before(at)) {
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

// loop makes surveys while they are needed.
func (v *surveys) loop(ctx context.Context, poke <-chan struct{}) {
	s := v.waits
	for {
		s.pub.lock()
		in, needed := v.next(time.Now())
		if !needed || ctx.Err() != nil {
			v.running = false
			s.pub.unlock()
			return
		}
		if in > 0 {
			s.pub.unlock()
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
		s.pub.unlock()
		compare := func(h *source.Header) { y.see(s.pub.current().base, s.intern, h) }
		err := by.List(ctx, compare, func(version string, more bool) error { return v.page(ctx, y, version, more) })
		s.pub.lock()
		v.finish(y, err)
		failed := v.err
		s.pub.unlock()
		if failed != nil {
			s.logger.DebugContext(ctx, "cannot ask the server what there is", "namespace", v.cov.ns, "error", failed)
		}
	}
}

// see compares one listed object with the store. The store only moves forward meanwhile, so an object that matches now
// stays at least as new as the list.
func (y *survey) see(base *state, in *interner, h *source.Header) {
	y.listed++
	if y.hopeless {
		return
	}
	want := listed{ver: parseVersion(h.ResourceVersion), uid: types.UID(h.UID)}
	have, ok := base.find(in, h)
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
func (v *surveys) page(ctx context.Context, y *survey, ver string, more bool) error {
	s := v.waits
	s.pub.lock()
	first := y.ver.isZero()
	y.ver = parseVersion(ver)
	if v.cov.dropped || v.lists != y.lists || y.enough(false) != nil { // the watch may have caught up between two pages
		s.pub.unlock()
		return errEnough
	}
	v.open, y.complete = y, !more
	s.notify()
	alone := !slices.ContainsFunc(s.waiters, func(w *waiter) bool { return w.asksOf(v.cov) })
	s.pub.unlock()
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

// finish records the end of a survey. The caller holds the writer lock.
func (v *surveys) finish(y *survey, err error) {
	s := v.waits
	if errors.Is(err, errEnough) {
		err = nil
	}
	if v.open == y && (!y.complete || y.hopeless) { // it tells the version to reach, but not when that is reached
		v.forget()
	}
	v.futile++
	future := func(w *waiter) bool { return w.asksOf(v.cov) && w.since < y.number && w.ver.newer(y.ver) }
	if v.err = err; err == nil && !y.hopeless && !slices.ContainsFunc(s.waiters, future) {
		v.futile = 0
	}
	if err == nil {
		return
	}
	if api, ok := errors.AsType[*source.APIError](err); ok && api.Code < 500 && api.Code != 410 && api.Code != 429 {
		s.end(err, func(w *waiter) bool { return w.barrier && w.concerns(v.cov) && w.since < y.number })
	}
}

// check ends the open survey if the scope has reached it; the caller holds the writer lock.
func (v *surveys) check() {
	y := v.open
	if y == nil {
		return
	}
	if !v.cov.version.atLeast(y.ver) {
		if !y.complete || y.hopeless || !v.shows(y) {
			return
		}
		v.cov.advance(y.ver)
		v.settle(y)
	}
	v.cov.surveyed = y.number
	v.forget()
}

// settle drops the own writes that the survey is newer than, as a list does. An object that was created and
// deleted since was never in the base, and the watch will not mention it any more. The caller holds the writer lock.
func (v *surveys) settle(y *survey) {
	s := v.waits
	if s.overlay.isEmpty() {
		return
	}
	base := s.pub.current().base
	var batch []change
	for _, g := range s.overlay.listed(v.cov.ns, nil, y.clock, y.ver, base, base) {
		batch = append(batch, change{typ: Deleted, inferred: true, relist: true, obj: g})
	}
	wake := s.pub.publish(root{base: base, merged: s.overlay.rebuild(base)}, batch)
	if len(batch) > 0 && !s.pub.isClosed() {
		s.running.Go(wake) // not under the lock
	}
}

// forget ends the open survey. Waiters may need another one. The caller holds the writer lock.
func (v *surveys) forget() {
	if v.open != nil {
		close(v.open.over)
		v.open = nil
		v.attend()
	}
}

// end ends the open survey and the goroutine of loop. The caller holds the writer lock.
func (v *surveys) end() {
	v.forget()
	if v.running {
		v.stop()
	}
}

// shows reports whether the scope has exactly the listed objects. The caller holds the writer lock.
func (v *surveys) shows(y *survey) bool {
	s, base := v.waits, v.waits.pub.current().base
	get := func(k Key) (*Record, bool) { return base.get(s.intern.hashOf(k), k) }
	for n := len(y.missing); n > 0; n-- {
		want := &y.missing[n-1]
		if have, ok := get(want.key); !ok || !want.is(have) {
			if q, unread := v.cov.quarantine[want.key]; !unread || q.Version != want.ver.String() {
				return false
			}
			y.unread = append(y.unread, want.key)
		}
		y.missing = y.missing[:n-1]
	}
	have := v.cov.count(base)
	for _, k := range y.unread {
		if _, ok := get(k); !ok {
			have++
		}
	}
	return have == y.listed
}

// relisted makes waiters check again after the content was changed other than by the watch. The caller holds the writer
// lock.
func (v *surveys) relisted() {
	v.waits.notify()
	v.lists++
	v.forget()
	v.attend()
}
