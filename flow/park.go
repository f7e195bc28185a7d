package flow

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// parking is what a parked fiber waits for beyond a time.
type parking struct {
	then, orElse int32
	waits        []waiting
	backstop     time.Duration // between live checks, 0 none
	events       bool          // the live check is a backstop for events, not the only look
	checkAt      int64         // the next live check
	timeoutAt    int64         // 0 none
	fork         *join
}

type waiting struct {
	wait Wait
	stop func()
}

// Token resumes one suspension. It is comparable and safe for concurrent use; the zero Token resumes nothing.
type Token struct {
	f   *fiber
	seq uint32
}

// Token makes the token of the suspension that this step is about to return. It may be given away, and resumed, before the step
// returns. A step that does not suspend on it, and a later call, make it stale.
func (f *fiber) Token() Token {
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	f.seq++
	f.poke &^= pokeToken
	f.tokens = true
	return Token{f, f.seq}
}

// Resume ends the suspension; Value then finds value. It says whether it did: a second or late resume changes nothing and
// returns false.
func (t Token) Resume(value any) bool { return t.resume(value, nil) }

// Fail ends the suspension with an error, which fails the step. It says whether it did.
func (t Token) Fail(err error) bool {
	if err == nil {
		err = fmt.Errorf("suspension failed without an error")
	}
	return t.resume(nil, err)
}

func (t Token) resume(value any, err error) bool {
	f := t.f
	if f == nil {
		return false
	}
	f.e.mu.Lock()
	defer f.e.mu.Unlock()
	if f.seq != t.seq || f.sealed || f.cancelled.Load() {
		return false
	}
	f.seq++
	x := f.ext()
	x.value, x.resumeErr, x.tokenSeq = value, err, t.seq
	f.poke |= pokeToken
	if f.state == Parked && f.why == whySuspend {
		f.e.makeReady(f)
	}
	return true
}

// dropToken makes a token stale that the step did not suspend on.
func (r *run) dropToken() {
	r.e.mu.Lock()
	r.f.seq++
	r.f.poke &^= pokeToken
	r.f.tokens = false
	r.e.mu.Unlock()
}

func (r *run) suspend(n Next, then, orElse int32) move {
	f, t := r.f, n.token
	r.e.mu.Lock()
	early := f.poke&pokeToken != 0 && f.x.Load().tokenSeq == t.seq
	fresh := t.f == f && f.tokens && (t.seq == f.seq || early)
	f.tokens = false
	r.e.mu.Unlock()
	if !fresh {
		r.dropToken()
		return r.fail(fmt.Errorf("cannot suspend: %w", ErrStaleToken), orElse)
	}
	f.park = &parking{then: then, orElse: orElse}
	if !early {
		r.savePark(f.attempt, whySuspend, 0, orElse)
	}
	if n.action != nil {
		if err := f.guard(func() error { return n.action(r.ctx) }); err != nil {
			r.dropToken()
			f.park = nil
			if _, panicked := err.(*PanicError); panicked {
				return r.failed(err, none)
			}
			return r.fail(err, orElse)
		}
	}
	if r.tryPark(whySuspend, r.earliest(0), pokeToken) {
		return move{kind: moveAway}
	}
	if f.cancelled.Load() {
		return move{kind: moveCancel}
	}
	return r.resumed(pokeToken)
}

// resumed goes on after a suspension: its token was used, or its time is over.
func (r *run) resumed(poke pokes) move {
	f, p := r.f, r.f.park
	f.park = nil
	r.e.mu.Lock()
	used := (poke|f.poke)&pokeToken != 0
	f.poke &^= pokeToken
	var err error
	if used {
		err = f.x.Load().resumeErr
	} else {
		f.seq++ // too late from here on
	}
	r.e.mu.Unlock()
	switch {
	case !used:
		return r.fail(errDeadline, p.orElse)
	case err != nil:
		return r.fail(err, p.orElse)
	}
	return r.after(p.then)
}

// await registers the waits, looks at them once, and parks.
func (r *run) await(n Next, then, orElse int32, deadline int64) move {
	f := r.f
	p := &parking{then: then, orElse: orElse}
	f.park = p
	r.e.mu.Lock()
	f.seq++
	f.poke &^= pokeEvent
	w := Waker{f, f.seq}
	r.e.mu.Unlock()
	p.waits = make([]waiting, 0, len(n.waits))
	blind := 0 // waits that are looked at only beside others
	for _, wait := range n.waits {
		switch t := wait.(type) {
		case nil:
			r.dropWaits()
			return r.fail(fmt.Errorf("%w: cannot await: wait is nil", ErrInvalid), orElse)
		case timeout:
			if at := plus(r.now, time.Duration(t)); p.timeoutAt == 0 || at < p.timeoutAt {
				p.timeoutAt = at
			}
			continue
		case until:
		case polled:
			if t.check == nil {
				r.dropWaits()
				return r.fail(fmt.Errorf("%w: cannot await: Func has no function", ErrInvalid), orElse)
			}
			if p.limitBackstop(r.e.opt.Backstop, wait); t.interval <= 0 {
				blind++
			}
		default:
			p.limitBackstop(r.e.opt.Backstop, wait)
		}
		var stop func()
		if err := f.guard(func() error { stop = wait.Watch(w); return nil }); err != nil {
			r.dropWaits()
			return r.failed(err, none)
		}
		p.waits = append(p.waits, waiting{wait, stop})
	}
	if blind > 0 && blind == len(n.waits) {
		r.dropWaits()
		return r.fail(fmt.Errorf("%w: cannot await: Func has no interval, nor a wait beside it", ErrInvalid), orElse)
	}
	if deadline > 0 && p.timeoutAt > 0 {
		p.timeoutAt = deadline // of before the restart: it goes on counting
	}
	p.checkAt = r.nextCheck(p)
	if spread := int64(p.backstop) / 2; p.events && spread > 0 && p.checkAt == plus(r.now, p.backstop) {
		p.checkAt -= rand.Int64N(spread) // fibers that began to wait together shall not look together
	}
	m, done := r.check(false)
	if done {
		return m
	}
	r.savePark(f.attempt, whyAwait, p.timeoutAt, orElse)
	return r.parkAwait()
}

// limitBackstop makes the interval of p at most that of wait.
func (p *parking) limitBackstop(d time.Duration, wait Wait) {
	if b, ok := wait.(Backstopped); ok {
		d = b.Backstop()
	}
	if d > 0 && (p.backstop == 0 || d < p.backstop) {
		_, only := wait.(polled)
		p.backstop, p.events = d, !only
	}
}

// nextCheck is when the waits are to be looked at live: after the interval, or when the first Until comes.
func (r *run) nextCheck(p *parking) int64 {
	at := int64(0)
	if p.backstop > 0 {
		at = plus(r.now, p.backstop)
	}
	for _, w := range p.waits {
		if t, ok := w.wait.(until); ok {
			if u := r.e.since(time.Time(t)); u > r.now && (at == 0 || u < at) {
				at = u
			}
		}
	}
	return at
}

// awaited looks at the waits because something has happened, or it is time to.
func (r *run) awaited() move {
	p := r.f.park
	late := p.timeoutAt > 0 && r.now >= p.timeoutAt
	due := p.checkAt > 0 && r.now >= p.checkAt
	if m, done := r.check(due || late); done {
		return m
	}
	if late {
		r.dropWaits()
		return r.fail(fmt.Errorf("await: %w", ErrTimeout), p.orElse)
	}
	if at := r.deadline(); at > 0 && r.now >= at {
		r.dropWaits()
		return r.fail(errDeadline, p.orElse)
	}
	if due {
		p.checkAt = r.nextCheck(p)
	}
	return r.parkAwait()
}

// parkAwait parks until an event, the next live check, or a time limit; an event that came while the waits were looked at has
// them looked at again.
func (r *run) parkAwait() move {
	f, p := r.f, r.f.park
	for {
		at := r.earliest(p.timeoutAt)
		if p.checkAt > 0 && (at == 0 || p.checkAt < at) {
			at = p.checkAt
		}
		if r.tryPark(whyAwait, at, pokeEvent) {
			return move{kind: moveAway}
		}
		if f.cancelled.Load() {
			return move{kind: moveCancel}
		}
		r.e.mu.Lock()
		f.poke &^= pokeEvent
		r.e.mu.Unlock()
		r.openContext()
		if m, done := r.check(false); done {
			return m
		}
	}
}

// check looks at the waits, in order; done tells that the await is over.
func (r *run) check(live bool) (m move, done bool) {
	f, p := r.f, r.f.park
	for i := range p.waits {
		w := p.waits[i].wait
		var ok bool
		err := f.guard(func() (err error) {
			if t, is := w.(until); is {
				ok = r.e.now() >= r.e.since(time.Time(t))
				return nil
			}
			ok, err = w.Check(r.ctx, live)
			return err
		})
		if err == nil && !ok {
			continue
		}
		many := len(p.waits) > 1
		r.dropWaits()
		r.now = r.e.now()
		if _, panicked := err.(*PanicError); panicked {
			return r.failed(err, none), true
		}
		if err != nil {
			return r.fail(err, p.orElse), true
		}
		if many {
			f.ext().value = w
		}
		return r.after(p.then), true
	}
	return move{}, false
}

// dropWaits ends the watches of an await.
func (r *run) dropWaits() {
	f, p := r.f, r.f.park
	if p == nil || p.waits == nil {
		return
	}
	f.park = nil
	r.e.mu.Lock()
	f.seq++ // later wakes are of the past
	f.poke &^= pokeEvent
	r.e.mu.Unlock()
	for _, w := range p.waits {
		if w.stop == nil {
			continue
		}
		if err := f.guard(func() error { w.stop(); return nil }); err != nil {
			r.logPanic(err)
		}
	}
}
