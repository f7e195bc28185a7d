package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/goroutine"
	"github.com/fairlead-io/fairlead/internal/handover"
	"github.com/fairlead-io/fairlead/shard"
)

// desk is a scheduler whose workers the test plays.
type desk struct {
	*scheduler
	t       *testing.T
	started int // workers
}

func newDesk(t *testing.T, change func(s *scheduler)) *desk {
	d := &desk{t: t}
	d.scheduler = &scheduler{
		controller: "gateways", limit: 2, retries: retries{backoff: Backoff{Base: time.Minute, Cap: time.Minute}},
		startWorker: func() { d.started++ }, wake: func() {}, q: newQueue(),
	}
	d.retries.random = func() float64 { return 1 }
	if change != nil {
		change(d.scheduler)
	}
	d.begin(t.Context(), nil)
	return d
}

// change reports an event of an object with a generation.
func (d *desk) change(k Key, gen int64) {
	d.changed(k, Reason{Type: Modified, Key: k}, high, 0, &facts{uid: "1", gen: gen, version: fmt.Sprint(gen)})
}

// take starts a reconciliation that sees a generation. It returns nil if the worker ends.
func (d *desk) take(gen int64) *reconciliation {
	_, r := d.next(goroutine.Current())
	if r != nil {
		d.reads(r, facts{uid: "1", gen: gen, version: fmt.Sprint(gen)})
	}
	return r
}

func (d *desk) end(r *reconciliation, res Result, err error) verdict {
	return d.finish(r, completion{res: res, err: err, at: time.Now(), existed: true, exists: true})
}

// idle checks that no object is ready.
func (d *desk) idle(reason string) {
	d.t.Helper()
	if _, r := d.next(goroutine.Current()); r != nil {
		d.t.Fatalf("%s: %s is reconciled because of %v", reason, r.key, r.why.list)
	}
	d.workers++ // the next call plays the same worker
}

// TestSchedulerIgnored: an event of the state that a reconciliation has read, but has not looked at, leads to another
// one. Such a reconciliation only handles the end of a fiber, which may have seen an older state.
func TestSchedulerIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		k := key("a", 1)
		for _, ignored := range []bool{false, true} {
			d.changed(k, Reason{Type: Triggered, Key: k}, high, 0, nil)
			r := d.take(2)
			d.change(k, 2)
			d.end(r, Result{ignored: ignored}, nil)
			if !ignored {
				d.idle("The reconciliation has looked at this state.")
				continue
			}
			if r = d.take(2); r == nil || len(r.why.list) != 1 || r.why.list[0].Type != Modified {
				t.Fatalf("the next reconciliation is %+v", r)
			}
			d.end(r, Done, nil)
		}
	})
}

// TestSchedulerEvents: events during a reconciliation lead to one more, unless it has seen their state.
func TestSchedulerEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		k := key("a", 1)
		d.change(k, 1)
		if d.started != 1 {
			t.Errorf("%d workers for one object", d.started)
		}
		r := d.take(1)
		d.change(k, 1) // a late event of the same state
		d.idle("it is running")
		if v := d.end(r, Done, nil); v.outcome != "success" || v.failed != nil {
			t.Errorf("the verdict is %+v", v)
		}
		d.idle("it has seen the event")
		d.change(k, 2)
		r = d.take(2)
		d.change(k, 3)
		d.change(k, 4)
		d.end(r, Done, nil)
		r = d.take(4)
		if r == nil || len(r.why.list) != 1 {
			t.Fatalf("two events led to %+v", r)
		}
		d.end(r, Done, nil)
		d.idle("all events are handled")
		if o := d.object(k); !o.last.Equal(time.Now()) {
			t.Errorf("the last success was at %v", o.last)
		}
		if len(d.q.items) != 0 {
			t.Errorf("an idle object without history takes memory: %v", maps.Keys(d.q.items))
		}
	})
}

// TestSchedulerFailures: an event does not shorten the back-off, unless it shows another spec.
func TestSchedulerFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		k := key("a", 1)
		d.change(k, 1)
		v := d.end(d.take(1), Done, errors.New("failed"))
		if v.outcome != string(Retryable) || v.failed == nil || v.failed.Attempts != 1 {
			t.Fatalf("the verdict is %+v", v)
		}
		d.changed(k, Reason{Type: Triggered}, high, 0, nil)
		d.idle("in back-off")
		if next := d.expire(); !next.Equal(v.failed.Next) {
			t.Errorf("the next attempt is at %v, want %v", next, v.failed.Next)
		}
		d.change(k, 2)
		if r := d.take(2); r == nil || r.attempt != 1 {
			t.Fatalf("another generation leads to %+v", r)
		} else if v := d.end(r, Done, AsTerminal(errors.New("failed"))); v.outcome != string(Stopped) {
			t.Errorf("the verdict is %+v", v)
		}
		d.changed(k, Reason{Type: Interval}, low, 0, nil)
		d.idle("a terminal error")
		d.change(k, 3)
		d.end(d.take(3), Done, errors.New("failed"))
		time.Sleep(time.Minute)
		d.expire()
		r := d.take(3)
		if r == nil || r.attempt != 2 || r.why.list[len(r.why.list)-1].Type != Retried {
			t.Fatalf("after the back-off: %+v", r)
		}
		if w := d.workload(anyFailure); len(w.failing) != 1 || w.failing[0].Attempts != 1 || w.Running != 1 {
			t.Errorf("the workload is %+v", w)
		}
		d.end(r, Done, nil)
		if n := d.counts(); n.Failed != 0 {
			t.Errorf("%d failed after a success", n.Failed)
		}
	})
}

// TestSchedulerPreempts: with preempt, an event with another spec stops the reconciliation, and another one follows.
func TestSchedulerPreempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, func(s *scheduler) { s.preempt = true })
		k := key("a", 1)
		d.change(k, 1)
		r := d.take(1)
		d.changed(k, Reason{Type: Modified, Source: "other"}, high, 0, nil)
		if r.fence() != nil {
			t.Error("an event of another object preempts")
		}
		d.change(k, 2)
		if !errors.Is(r.fence(), ErrPreempted) {
			t.Errorf("its requests are refused with %v", r.fence())
		}
		v := d.end(r, Done, &abortError{cause: ErrPreempted, err: errors.New("failed")})
		if v.outcome != "aborted" || v.failed != nil {
			t.Errorf("the verdict is %+v", v)
		}
		r = d.take(2)
		if r == nil || len(r.why.list) != 2 {
			t.Fatalf("the reasons are lost: %+v", r)
		}
		d.deleted(k, Reason{Type: Deleted})
		if !errors.Is(r.fence(), ErrPreempted) {
			t.Error("a deletion does not preempt")
		}
	})
}

// TestSchedulerSlots: objects of slots that are not held are not reconciled. Nothing follows a reconciliation whose
// slot has left.
func TestSchedulerSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		layout := shard.Layout{By: shard.UID, Slots: 8}
		slots := handover.New(layout, nil, nil)
		own, known := layout.SlotOf("a", "1"), true
		d := newDesk(t, func(s *scheduler) {
			s.slots, s.uidOf = slots, func(Key) (types.UID, bool) {
				if s.mu.TryLock() {
					s.mu.Unlock()
					t.Error("the uid is read without the lock, so it may replace that of a newer object")
				}
				return "1", known
			}
		})
		one, two := key("a", 1), key("a", 2)
		d.change(one, 1)
		d.idle("the slot is not held")
		slots.Gain(layout.Set(own))
		known = false
		d.changed(one, Reason{Type: Triggered}, high, 0, nil)
		d.idle("the object does not exist")
		d.change(one, 1)
		d.change(two, 1)
		r := d.take(1)
		drain := d.lose(layout.Set(own))
		if n := len(d.q.items); n != 1 {
			t.Errorf("the queue keeps %d objects, want only the running one", n)
		}
		cut, stop := context.WithCancelCause(t.Context())
		var quiet shard.Set
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			drain.Wait(cut, d.stop, func(s shard.Set) { quiet = s })
		}()
		synctest.Wait()
		cause := errors.New("too slow")
		stop(cause)
		synctest.Wait()
		if !quiet.IsEmpty() || !errors.Is(r.fence(), cause) {
			t.Errorf("slots %v are reported while a reconciliation runs, whose requests are refused with %v", quiet, r.fence())
		}
		if v := d.end(r, Done, errors.New("failed")); v.outcome != "left" || v.failed != nil {
			t.Errorf("the verdict is %+v", v)
		}
		<-ended
		if quiet != layout.Set(own) || len(d.q.items) != 0 {
			t.Errorf("slots %v are reported, and the queue keeps %d objects", quiet, len(d.q.items))
		}
	})
}

// TestSchedulerTerms: no reconciliation starts outside a term. Objects keep their places meanwhile.
func TestSchedulerTerms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		d.scheduler.end()
		d.change(key("a", 1), 1)
		if d.started != 0 || d.leads() {
			t.Errorf("%d workers start outside a term", d.started)
		}
		d.workers++
		d.idle("outside a term")
		ctx, end := context.WithCancel(t.Context())
		d.begin(ctx, nil)
		r := d.take(1)
		if r == nil || r.term != ctx || d.termOf(r.key) != ctx {
			t.Fatalf("in a term: %+v", r)
		}
		end()
		d.change(key("a", 2), 1)
		d.idle("the context of the term has ended")
	})
}

// TestSchedulerLimits: the number of workers follows the ready objects up to the limit. Rate limits delay starts, and
// expire returns the time of the next allowed start.
func TestSchedulerLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		woken := 0
		d := newDesk(t, func(s *scheduler) {
			s.total, s.each = rate{n: 2, per: time.Minute}, rate{n: 1, per: time.Hour}
			s.wake = func() { woken++ }
		})
		begun := time.Now()
		for i := range 3 {
			d.change(key("a", i), 1)
		}
		if d.started != 2 {
			t.Errorf("%d workers, the limit is 2", d.started)
		}
		for range 2 {
			d.end(d.take(1), Done, nil)
		}
		d.idle("two started in this minute")
		if next := d.expire(); !next.Equal(begun.Add(time.Minute)) || woken == 0 {
			t.Errorf("the next start is at %v; the pump was woken %d times", next, woken)
		}
		time.Sleep(time.Minute)
		d.expire()
		if r := d.take(1); r == nil || r.key != key("a", 2) {
			t.Fatalf("after a minute: %+v", r)
		} else {
			d.end(r, Done, nil)
		}
		d.change(key("a", 0), 2)
		d.idle("once in an hour")
		if next := d.expire(); !next.Equal(begun.Add(time.Hour)) {
			t.Errorf("the next start is at %v", next)
		}
		if o := d.object(key("a", 0)); o.state != waiting || o.dueFor != "" {
			t.Errorf("the state of the object is %+v", o)
		}
	})
}

// TestSchedulerModel: at most one reconciliation runs for an object. Each change is followed by a reconciliation that
// has seen it, whatever the outcomes.
func TestSchedulerModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := newDesk(t, func(s *scheduler) { s.limit = 3 })
		d.retries.random = func() float64 { return 0 }
		d.retries.backoff = Backoff{Base: 1, Cap: 1}
		state, seen := map[Key]int64{}, map[Key]int64{}
		var active []*reconciliation
		finish := func(i int, err error, res Result) {
			r := active[i]
			active = append(active[:i:i], active[i+1:]...)
			d.end(r, res, err)
			if err == nil {
				seen[r.key] = r.facts.gen
			}
		}
		take := func() bool {
			_, r := d.next(goroutine.Current())
			if r == nil {
				d.workers++
				return false
			}
			for _, other := range active {
				if other.key == r.key {
					rt.Fatalf("%s is reconciled twice at a time", r.key)
				}
			}
			d.reads(r, facts{uid: "1", gen: state[r.key], version: fmt.Sprint(state[r.key])})
			active = append(active, r)
			return true
		}
		rt.Repeat(map[string]func(*rapid.T){
			"change": func(t *rapid.T) {
				k := key("a", rapid.IntRange(0, 3).Draw(t, "key"))
				state[k]++
				d.change(k, state[k])
			},
			"take": func(*rapid.T) { take() },
			"finish": func(t *rapid.T) {
				if len(active) == 0 {
					t.Skip("none runs")
				}
				i := rapid.IntRange(0, len(active)-1).Draw(t, "which")
				switch rapid.IntRange(0, 3).Draw(t, "outcome") {
				case 0:
					finish(i, nil, Done)
				case 1:
					finish(i, errors.New("failed"), Done)
				case 2:
					finish(i, &abortError{cause: ErrPreempted, err: errors.New("failed")}, Done)
				case 3:
					finish(i, nil, After(0))
				}
			},
		})
		for range 100 { // let all work end
			for len(active) > 0 {
				finish(0, nil, Done)
			}
			d.expire()
			for take() {
			}
			if len(active) == 0 && len(d.q.times) == 0 {
				break
			}
		}
		for k, want := range state {
			if seen[k] != want {
				rt.Fatalf("generation %d of %s was reconciled at last, want %d", seen[k], k, want)
			}
		}
	})
}

// TestSchedulerRecovery: a fiber that has succeeded so far ends the failure of an earlier fiber, but no later failure.
func TestSchedulerRecovery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, nil)
		k := key("a", 1)
		d.recovered(k) // no failure is known
		d.change(k, 1)
		d.end(d.take(1), Done, errors.New("first"))
		d.recovered(k)
		if n := d.counts().Failed; n != 1 {
			t.Fatalf("a failure in back-off is counted %d times", n)
		}
		time.Sleep(time.Minute)
		d.expire()
		r := d.take(1)
		if r == nil || r.attempt != 2 {
			t.Fatalf("the retry is %+v", r)
		}
		d.recovered(k) // the fiber recovers before the end of the reconciliation that has started it
		d.end(r, pending, nil)
		if c := d.counts(); c.Failed != 0 || len(d.q.items) != 0 {
			t.Errorf("after it has recovered: %+v, and %d items", c, len(d.q.items))
		}

		d.change(k, 1)
		d.end(d.take(1), Done, errors.New("second"))
		time.Sleep(time.Minute)
		d.expire()
		if r = d.take(1); r.attempt != 2 {
			t.Errorf("the retry of a new failure is attempt %d", r.attempt)
		}
		d.end(r, pending, nil)
		if n := d.counts().Failed; n != 1 {
			t.Errorf("while the fiber has not succeeded: %d failures", n)
		}
		d.recovered(k)
		if c := d.counts(); c.Failed != 0 || len(d.q.items) != 0 {
			t.Errorf("after it has recovered again: %+v, and %d items", c, len(d.q.items))
		}
	})
}
