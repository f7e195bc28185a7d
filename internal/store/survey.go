package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
)

// How waits end on a watch that is quiet. The version of the server moves with every write to it, to whatever
// resource, and a watch tells its version only with an event of its own or a bookmark, about once a minute. So a wait
// that the watch does not end soon is settled by a survey: one consistent list of the scope by metadata, at some
// version, is compared with what is here. The watch brings changes in the order of their versions; therefore, when
// exactly the listed objects are here, with their versions, nothing is missing up to the version of the list, and the
// scope is as far as that. If something is missing the watch has yet to bring it, and the comparison is made again
// with each change until it has.
//
// One survey at a time serves all who wait, and the next one begins no sooner than a second after it; none begins
// while the watch has yet to bring what the last one saw.

const (
	surveyEvery  = time.Second
	surveyRarely = 8 * time.Second // when surveys fail, or what is waited for is not there yet
	// maxMissing is up to how many differences are remembered. With more of them the watch is far behind, and another
	// list is made later.
	maxMissing = 10_000
)

// surveys are those of one scope; guarded by Store.mu.
type surveys struct {
	by      *source.Surveyor // nil: no source fills the scope yet
	running bool             // somebody is looked after
	stop    context.CancelFunc
	poke    chan struct{} // somebody new waits

	last    time.Time // when the last one began; zero: there was none
	reached uint64    // number of the last one that the scope has reached
	lists   int       // replacements so far: what was compared before one does not count
	futile  int       // surveys in a row that helped nobody
	err     error     // of the last one
	open    *survey   // that the scope has not reached yet
}

// survey is what one list has told; guarded by Store.mu, but for listed, missing and hopeless until it is complete.
type survey struct {
	number   uint64
	clock    uint64 // of the overlay: it sees every write that was answered before
	lists    int
	ver      version
	complete bool
	hopeless bool // too much is missing
	listed   int
	missing  []listed      // here they are absent or older
	unread   []Key         // of those that were missing: they cannot be read
	over     chan struct{} // closed when the scope has reached it, or it does not count any more
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

// attend sees to it that somebody looks after those who wait for the scope; the caller holds s.mu.
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

// nextSurvey says in how long a survey is to begin; needed is false if nobody who waits is helped by one. The caller
// holds s.mu.
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

// see takes one listed object. The state moves on meanwhile, but not back: what is here now will be, or something
// newer than the list.
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

// is says whether a record is what was listed, or newer.
func (l *listed) is(r *Record) bool {
	return r.ver.equal(l.ver) && r.id.hasUID([]byte(l.uid)) || r.ver.newer(l.ver)
}

// errEnough ends a survey whose other pages are not needed.
var errEnough = errors.New("enough is known")

// page takes the end of a page.
func (sc *scope) page(ctx context.Context, y *survey, ver string, more bool) error {
	s, v := sc.s, &sc.surveys
	s.mu.Lock()
	first := y.ver.isZero()
	y.ver = parseVersion(ver)
	if sc.dropped || v.lists != y.lists || y.enough(false) != nil { // the watch may have come so far between two pages
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
	timer := time.NewTimer(waitPatience) // the watch may be as far in a moment, which saves the other pages
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

// endSurvey takes the end of a survey; the caller holds s.mu.
func (sc *scope) endSurvey(y *survey, err error) {
	s, v := sc.s, &sc.surveys
	if errors.Is(err, errEnough) {
		err = nil
	}
	if v.open == y && (!y.complete || y.hopeless) { // it says how far to go, but not when that is reached
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

// settleOverlay drops own writes that the survey was newer than, as a list does: what was created by us and deleted
// since was never here, and the watch will not be heard about it any more. The caller holds s.mu.
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

// forget ends the open survey; those who wait may need another one. The caller holds s.mu.
func (sc *scope) forget() {
	if v := &sc.surveys; v.open != nil {
		close(v.open.over)
		v.open = nil
		sc.attend()
	}
}

// endSurveys ends what is under way; the caller holds s.mu.
func (sc *scope) endSurveys() {
	sc.forget()
	if sc.surveys.running {
		sc.surveys.stop()
	}
}

// shows says whether the scope has what was listed, and nothing besides; the caller holds s.mu.
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
