package flow

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testScheduler returns a scheduler without an engine. Fibers that join it belong to the group.
func testScheduler(workers int) (*core, *sync.WaitGroup, func(group string) *fiber) {
	c, wg := &core{time: newTimeline(systemClock{})}, &sync.WaitGroup{}
	c.sched.start(c, wg, 0, func(f *fiber, _ int64) { c.sched.poke(f, pokeTimer) })
	c.sched.limit = workers
	return c, wg, func(group string) *fiber {
		f := &fiber{heapAt: -1}
		c.sched.join(f, group, "")
		return f
	}
}

func busy(c *core) int {
	_, n, _ := c.sched.load()
	return n
}

func TestSchedulerRunsAFiberUntilItIsParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, wg, join := testScheduler(2)
		type pick struct {
			why   reason
			poke  pokes
			after time.Duration
		}
		began := time.Now()
		var picks []pick
		c.sched.run = func(f *fiber, why reason, poke pokes, _ int64) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if f.state != Running || busy(c) != 1 {
				t.Errorf("it runs as %v, on %d workers", f.state, busy(c))
			}
			if _, ok := c.sched.goroutine(f); !ok {
				t.Error("no goroutine runs it")
			}
			picks = append(picks, pick{why, poke, time.Since(began)})
			switch len(picks) {
			case 1:
				c.sched.park(f, whyAwait, c.time.now()+int64(time.Minute))
			case 2:
				c.sched.park(f, whySuspend, 0)
			default:
				c.sched.end(f, Completed)
			}
		}
		f := join("g")
		c.mu.Lock()
		c.sched.wake(f)
		c.mu.Unlock()
		time.Sleep(2 * time.Minute)
		c.mu.Lock()
		if f.state != Parked || f.why != whySuspend || busy(c) != 0 {
			t.Errorf("%v because of %v, with %d busy workers", f.state, f.why, busy(c))
		}
		c.sched.poke(f, pokeToken)
		if f.state != Ready || c.sched.queued.Load() != 1 {
			t.Errorf("after a poke it is %v", f.state)
		}
		c.mu.Unlock()
		synctest.Wait()
		c.mu.Lock()
		want := []pick{{whyNone, 0, 0}, {whyAwait, pokeTimer, time.Minute}, {whySuspend, pokeToken, 2 * time.Minute}}
		if !slices.Equal(picks, want) || f.state != Completed || len(c.sched.queue.groups) > 0 {
			t.Errorf("picked up %v, want %v; it is %v", picks, want, f.state)
		}
		c.sched.halt()
		c.mu.Unlock()
		wg.Wait()
	})
}

// TestSchedulerReplacesAWorker: a fiber whose code ends its goroutine ends, and the next one finds a worker.
func TestSchedulerReplacesAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, wg, join := testScheduler(1)
		var ended []*fiber
		end := func(f *fiber) {
			c.mu.Lock()
			defer c.mu.Unlock()
			ended = append(ended, f)
			c.sched.end(f, Failed)
		}
		bad, good := join("g"), join("g")
		c.sched.exited = end
		c.sched.run = func(f *fiber, _ reason, _ pokes, _ int64) {
			if f == bad {
				runtime.Goexit()
			}
			end(f)
		}
		c.mu.Lock()
		c.sched.wake(bad)
		c.sched.wake(good)
		c.mu.Unlock()
		synctest.Wait()
		c.mu.Lock()
		if !slices.Equal(ended, []*fiber{bad, good}) || busy(c) != 0 {
			t.Errorf("%d fibers have ended, %d workers are busy", len(ended), busy(c))
		}
		c.sched.halt()
		c.mu.Unlock()
		wg.Wait()
	})
}

// TestReadyQueueTakesTurns: groups take turns, the subgroups of a group take turns, and a full group is left out.
func TestReadyQueueTakesTurns(t *testing.T) {
	t.Parallel()
	q := &readyQueue{perGroup: 2}
	var fibers []*fiber
	for i, names := range [][2]string{{"big", "a"}, {"big", "a"}, {"big", "b"}, {"small", ""}, {"big", "b"}} {
		f := &fiber{id: uint64(i), subgroup: q.join(names[0], names[1])}
		q.push(f)
		fibers = append(fibers, f)
	}
	var order []uint64
	pop := func() (g *group) {
		f := q.pop()
		if f == nil {
			return nil
		}
		order = append(order, f.id)
		return f.subgroup.group
	}
	big := pop()
	for pop() != nil {
	}
	if want := []uint64{0, 3, 2}; !slices.Equal(order, want) || !q.full(big) {
		t.Fatalf("popped %v, want %v, and then two of the group run", order, want)
	}
	if !q.waits(big) {
		t.Error("no fiber of the full group is waiting")
	}
	q.release(big)
	pop()
	if got := slices.Collect(q.waiting(func(g *group) bool { return g == big })); !slices.Equal(got, fibers[4:]) {
		t.Errorf("%d fibers are waiting", len(got))
	}
	q.release(big)
	pop()
	if want := []uint64{0, 3, 2, 1, 4}; !slices.Equal(order, want) {
		t.Errorf("popped %v, want %v", order, want)
	}
	for _, f := range fibers {
		q.leave(f.subgroup)
	}
	if len(q.groups) > 0 {
		t.Errorf("%d groups are left", len(q.groups))
	}
}
