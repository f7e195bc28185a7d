package flow

import "time"

// setTimer makes f due at a time. The caller holds mu.
func (e *Engine) setTimer(f *fiber, at int64) {
	t := &e.timers
	t.set(f, at)
	e.arm()
}

// arm sets the alarm to the first timer. The caller holds mu.
func (e *Engine) arm() {
	t := &e.timers
	if len(t.heap) == 0 || (t.unset != nil && t.alarmAt <= t.heap[0].at) {
		return
	}
	if t.unset == nil || !t.unset() {
		e.wg.Add(1) // for the new alarm; an alarm that is firing keeps its own count
	}
	t.alarm++
	t.alarmAt = t.heap[0].at
	n := t.alarm
	t.unset = e.clock.AfterFunc(time.Duration(t.alarmAt-e.now()), func() { e.fire(n) })
}

// fire wakes all fibers that are due. It runs in the goroutine of the alarm.
func (e *Engine) fire(alarm uint64) {
	defer e.wg.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timers.alarm == alarm {
		e.timers.unset = nil
	}
	for now := e.now(); len(e.timers.heap) > 0 && e.timers.heap[0].at <= now; {
		f := e.timers.heap[0].f
		e.timers.remove(f)
		switch {
		case f.state == Parked && f.why == whyGate:
			e.overdue(f, now)
		case f.state == Parked:
			e.poke(f, pokeTimer)
		case f.state == Running: // the step deadline; mu keeps this from cancelling the next step
			if stop := f.progress.cancelFunc(); stop != nil {
				stop(ErrTimeout)
			}
		}
	}
	e.arm()
}
