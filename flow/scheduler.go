package flow

import (
	"iter"
	"sync"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// core is the part of an engine that its fibers know.
type core struct {
	// mu guards the scheduler, the other parts of the engine, and the fields of fibers that record.go names. It is
	// never held while user code runs. Of the locks of this package, only progress.mu is taken while mu is held.
	mu        sync.Mutex
	time      timeline
	sched     scheduler
	providers []Provider // values for Use in every fiber
}

// scheduler decides which fiber runs, on which worker. It owns the entries state, why, poke, worker, subgroup, qnext
// and heapAt of live fibers. The owner holds core.mu during each call.
type scheduler struct {
	mu   *sync.Mutex
	time *timeline
	wg   *sync.WaitGroup // counts the workers and the alarm
	// run runs f until it is parked, queued or ended. why says why f was parked, poke which events woke it. run is
	// called without mu.
	run func(f *fiber, why reason, poke pokes, now int64)
	// exited ends f, whose code has ended its goroutine. It is called without mu.
	exited func(f *fiber)

	queue    readyQueue
	timers   timers
	limit    int // a fiber begins while fewer workers are present
	maxAway  int // maximum number of workers in Blocking that are not present
	idle     *sync.Cond
	nidle    int
	blocking int  // workers in Blocking
	skipped  bool // the last worker beyond limit has retired
	workers  []*worker
	halted   bool
	queued   atomic.Int32 // fibers that wait for a worker
}

// worker is a goroutine that runs fibers.
type worker struct {
	index     int32
	goroutine goroutine.ID // the ID in stack traces
	fiber     *fiber       // the fiber that it runs; guarded by core.mu
	picked    int64        // when it picked up the fiber, in the engine's time; guarded by core.mu
	turn      uint64       // number of fibers that it has run; guarded by core.mu
	blocking  int          // calls of Blocking of its fiber that have not returned; guarded by core.mu
}

// start connects the scheduler to its owner, which has set limit, run and exited. perGroup is the maximum number of
// running fibers of one group, 0 for no limit. due is called with mu held when the time of a fiber has come.
func (s *scheduler) start(c *core, wg *sync.WaitGroup, perGroup int, due func(f *fiber, now int64)) {
	s.mu, s.time, s.wg = &c.mu, &c.time, wg
	s.idle = sync.NewCond(&c.mu)
	s.queue.perGroup = perGroup
	s.timers = timers{mu: &c.mu, time: &c.time, wg: wg, due: due}
}

// join puts f, which is new, into a subgroup of a group.
func (s *scheduler) join(f *fiber, group, sub string) { f.subgroup = s.queue.join(group, sub) }

// joinLike puts f, which is new, into the subgroup of another fiber.
func (s *scheduler) joinLike(f, other *fiber) { f.subgroup = s.queue.share(other.subgroup) }

// wake queues f for a worker. f is new, parked or yielding.
func (s *scheduler) wake(f *fiber) {
	f.state, f.worker = Ready, 0
	s.timers.remove(f)
	s.queue.push(f)
	s.queued.Add(1)
	s.hire()
}

// hire makes one more worker present, unless there are enough. Otherwise the next worker that finishes its fiber looks
// for another one.
func (s *scheduler) hire() {
	switch {
	case s.present() >= s.limit:
	case s.nidle > 0:
		s.nidle-- // for the worker that is woken, so that the next call wakes another one
		s.idle.Signal()
	default:
		w := &worker{index: int32(len(s.workers))}
		s.workers = append(s.workers, w)
		s.wg.Go(func() { s.work(w) })
	}
}

// present returns the number of workers that run a fiber and count for the limit.
func (s *scheduler) present() int { return len(s.workers) - s.nidle - s.away() }

// next returns the next fiber for a worker that is present, or nil. Of the workers beyond the limit, only every second
// one continues. Their number shrinks, and the ready fibers need not wait until it has.
func (s *scheduler) next() *fiber {
	if s.present() > s.limit {
		if s.skipped = !s.skipped; s.skipped {
			return nil
		}
	}
	return s.queue.pop()
}

// rest makes a worker without a fiber idle, or removes it if there are enough without it. It reports whether the worker
// was removed.
func (s *scheduler) rest(w *worker) (removed bool) {
	if len(s.workers)-s.away() <= s.limit {
		s.nidle++
		s.idle.Wait()
		return false
	}
	last := int32(len(s.workers) - 1)
	moved := s.workers[last]
	if f := moved.fiber; f != nil && f.worker == last+1 {
		f.worker = w.index + 1
	}
	s.workers[w.index], moved.index = moved, w.index
	s.workers = s.workers[:last]
	return true
}

// poke records an event of f, and wakes f if it is parked.
func (s *scheduler) poke(f *fiber, p pokes) {
	f.poke |= p
	if f.state == Parked {
		s.wake(f)
	}
}

// pokeIf records an event of f, and wakes f if it is parked for this reason.
func (s *scheduler) pokeIf(f *fiber, p pokes, why reason) {
	f.poke |= p
	if f.state == Parked && f.why == why {
		s.wake(f)
	}
}

// park parks f until it is poked, or until the given time (0: never).
func (s *scheduler) park(f *fiber, why reason, at int64) {
	f.state, f.why, f.poke, f.worker = Parked, why, 0, 0
	s.setTimer(f, at)
}

// setTimer makes f due at a time (0: never).
func (s *scheduler) setTimer(f *fiber, at int64) {
	if at > 0 {
		s.timers.set(f, at)
	} else {
		s.timers.remove(f)
	}
}

// timer returns when f is due, 0 if it is not.
func (s *scheduler) timer(f *fiber) int64 { return s.timers.of(f) }

// end removes f, which has ended, from its group.
func (s *scheduler) end(f *fiber, status Status) {
	f.state, f.why, f.worker = status, whyNone, 0
	s.timers.remove(f)
	s.queue.leave(f.subgroup)
}

// work runs fibers until the scheduler halts. If user code ends the goroutine (runtime.Goexit, as FailNow of a test
// does), the fiber fails and another goroutine replaces this one.
func (s *scheduler) work(w *worker) {
	w.goroutine = goroutine.Current()
	var f *fiber
	var g *group
	returned := false
	defer func() {
		if returned {
			return
		}
		s.mu.Lock()
		s.endAbsences(w)
		w.fiber = nil
		s.queue.release(g)
		s.mu.Unlock()
		s.wg.Go(func() { s.work(w) })
	}()
	defer func() {
		if !returned {
			s.exited(f)
		}
	}()
	s.mu.Lock()
	for !s.halted {
		if f = s.next(); f == nil {
			if s.rest(w) {
				break
			}
			continue
		}
		s.queued.Add(-1)
		g = f.subgroup.group
		why, poke := f.why, f.poke
		f.state, f.why, f.poke, f.worker = Running, whyNone, 0, w.index+1
		w.fiber, w.picked = f, s.time.now()
		now := w.picked
		s.mu.Unlock()
		s.run(f, why, poke, now)
		s.mu.Lock()
		s.endAbsences(w)
		w.fiber = nil
		s.queue.release(g)
	}
	s.mu.Unlock()
	returned = true
}

// busyWorker is a worker that runs a fiber.
type busyWorker struct {
	f         *fiber
	goroutine goroutine.ID
	picked    int64 // when it picked up f
	away      bool  // it is in Blocking and does not count for the limit
}

// busy yields the workers that run a fiber.
func (s *scheduler) busy() iter.Seq[busyWorker] {
	return func(yield func(busyWorker) bool) {
		for _, w := range s.workers {
			if w.fiber != nil && !yield(busyWorker{w.fiber, w.goroutine, w.picked, w.blocking > 0 && s.blocking <= s.maxAway}) {
				return
			}
		}
	}
}

// load returns the numbers of fibers that wait for a worker, and of workers that are present and away.
func (s *scheduler) load() (queued, present, away int) {
	return int(s.queued.Load()), s.present(), s.away()
}

// goroutine returns the goroutine that runs f. ok is false if no worker runs f.
func (s *scheduler) goroutine(f *fiber) (id goroutine.ID, ok bool) {
	if f.worker == 0 {
		return id, false
	}
	return s.workers[f.worker-1].goroutine, true
}

// halt ends the workers and the alarm. No fiber is left.
func (s *scheduler) halt() {
	s.halted = true
	s.nidle, s.blocking, s.workers = 0, 0, nil
	s.timers.stop()
	s.idle.Broadcast()
}

// absence is a call of Blocking by the fiber that a worker runs.
type absence struct {
	w    *worker
	turn uint64 // of the worker; the absence ends with it
}

// leave counts a call of Blocking by f, so that another fiber may begin.
func (s *scheduler) leave(f *fiber) absence {
	if f.worker == 0 {
		return absence{}
	}
	w := s.workers[f.worker-1]
	if w.blocking++; w.blocking == 1 {
		if s.blocking++; s.queue.head != nil {
			s.hire()
		}
	}
	return absence{w, w.turn}
}

// comeBack ends a call of Blocking, unless the worker has turned to another fiber.
func (s *scheduler) comeBack(a absence) {
	if a.w.turn != a.turn {
		return
	}
	if a.w.blocking--; a.w.blocking == 0 {
		s.blocking--
	}
}

// endAbsences ends all calls of Blocking of a worker, whose fiber has left it.
func (s *scheduler) endAbsences(w *worker) {
	if w.blocking > 0 {
		w.blocking = 0
		s.blocking--
	}
	w.turn++
}

// away returns the number of workers in Blocking that do not count.
func (s *scheduler) away() int { return min(s.blocking, s.maxAway) }
