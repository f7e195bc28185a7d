package store

import (
	"math"
	"sync"
	"time"
)

// Resync. An object is due when the hand of the subscriber's clock passes the hash of its key. The hand goes round once
// per period, in steps. So objects are spread evenly, each comes once per period, and no memory is needed per object. A
// subscriber gets a Sync only after all other events, so a stale state never follows a newer one.

const resyncSteps = 64

// resyncer is the clock of one cursor.
type resyncer struct {
	start time.Time
	step  int64  // steps done
	hand  uint64 // hashes up to here are done in this round
	open  bool   // a step is being given
	until uint64
	last  bool // the step ends the round
}

// due reports whether a step is due. It is false before Synced.
func (z *resyncer) due(c *Cursor) bool {
	if c.opt.Resync <= 0 || !c.done {
		return false
	}
	if z.open {
		return true
	}
	if z.start.IsZero() {
		z.start = time.Now()
	}
	return z.now(c) > z.step
}

func (z *resyncer) now(c *Cursor) int64 {
	return int64(time.Since(z.start) / max(1, c.opt.Resync/resyncSteps))
}

// fillResync appends the objects that are due.
func (c *Cursor) fillResync(max int) {
	z := &c.resync
	for len(c.out) < max && z.due(c) {
		cur := c.s.pub.current()
		if cur.seq != c.read.Load() || c.echo.isHolding() {
			return // newer changes are given first
		}
		if !z.open {
			z.begin(z.now(c))
		}
		walk := cur.base.objects.Seek(z.hand)
		for {
			r, ok := walk.Next()
			if !ok || !z.last && r.id.hash >= z.until {
				z.open = false
				if z.hand = z.until; z.last {
					z.hand = 0
				}
				break
			}
			if len(c.out) >= max {
				z.hand = r.id.hash
				return
			}
			if c.wants(r) {
				c.out = append(c.out, Event{Type: Sync, Key: r.Key(), Object: r, Prior: r})
			}
		}
	}
}

// begin opens the next step. It skips whole rounds that were missed.
func (z *resyncer) begin(now int64) {
	z.step++
	if behind := now - z.step; behind > resyncSteps {
		z.step += behind / resyncSteps * resyncSteps
	}
	at := uint64(z.step % resyncSteps)
	z.until, z.last, z.open = at*(math.MaxUint64/resyncSteps+1), at == 0, true
}

// resyncTimer wakes the cursors with a resync. A store has one. The writer lock guards all fields but
// wg.
type resyncTimer struct {
	timer *time.Timer
	every time.Duration
	wg    sync.WaitGroup
	armed uint64 // counts armings: a tick that was replaced does nothing
	off   bool
}

// start arms the timer for a cursor with a period of resync, unless it is armed for the same or a shorter one.
func (t *resyncTimer) start(period time.Duration, tick func(armed uint64)) {
	if period <= 0 || t.off {
		return
	}
	every := max(time.Millisecond, period/resyncSteps)
	if t.timer != nil && t.every <= every {
		return
	}
	t.stop()
	t.off = false
	t.every = every
	t.arm(tick)
}

// arm calls tick once, after t.every, with the number of this arming.
func (t *resyncTimer) arm(tick func(armed uint64)) {
	t.wg.Add(1)
	t.armed++
	mine := t.armed
	t.timer = time.AfterFunc(t.every, func() {
		defer t.wg.Done()
		tick(mine)
	})
}

// isCurrent reports whether an arming is the last one, and the timer was not stopped since.
func (t *resyncTimer) isCurrent(armed uint64) bool { return t.armed == armed && !t.off }

func (t *resyncTimer) stop() {
	if t.timer != nil && t.timer.Stop() {
		t.wg.Done()
	}
	t.timer, t.off = nil, true
}

func (t *resyncTimer) wait() { t.wg.Wait() }
