package executor_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

var database = operations.Resource{Type: "db", ID: "7"}

// waitingFor waits until the operation of a resource reports that it waits for another one, and returns the report.
func (b *bench) waitingFor(r operations.Resource, other *v1alpha1.Operation) string {
	b.T.Helper()
	said := ""
	b.Eventually("waiting for "+other.Name, func() bool {
		op, err := b.Scheduler.Get(b.Ctx, r)
		if err != nil {
			b.T.Fatal(err)
		}
		c := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != v1alpha1.ReasonWaitingForLock || !strings.Contains(c.Message, other.EffectiveID()) {
			return false
		}
		said = c.Message
		return true
	})
	return said
}

// gauge returns the value of a metric without labels, -1 if there is none.
func gauge(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// gate makes the receiver hold its answers to the calls of one path until open is called.
func (b *bench) gate(path string) (asked chan string, open func()) {
	asked, answer := make(chan string, 16), make(chan struct{})
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, at string, _ int) {
		if at == path {
			select {
			case asked <- at:
			case <-r.Context().Done(): // the test reads only as many as it needs
			}
			operationbed.Pause(r, answer)
		}
	}
	return asked, sync.OnceFunc(func() { close(answer) })
}

func TestLock(t *testing.T) {
	holder := operations.Request{Resource: app("holder"), Webhooks: []string{"hold"}}
	other := operations.Request{Resource: app("other"), Webhooks: []string{"next"}}
	with := func(r operations.Request, change func(*operations.Request)) operations.Request { change(&r); return r }
	locking := func(r operations.Request) operations.Request {
		return with(r, func(r *operations.Request) { r.Lock = []operations.Resource{database} })
	}
	about := func(r operations.Request) operations.Request {
		return with(r, func(r *operations.Request) { r.Resource = database })
	}
	related := func(r operations.Request) operations.Request {
		return with(r, func(r *operations.Request) { r.Related = []operations.Resource{database} })
	}
	tests := map[string]struct {
		reason        string
		first, second operations.Request
		waits         bool
	}{
		"BothLock":      {"Two locks of one resource exclude each other.", locking(holder), locking(other), true},
		"LockThenAbout": {"An operation on a locked resource waits.", locking(holder), about(other), true},
		"AboutThenLock": {"A lock waits for the operation on the resource.", about(holder), locking(other), true},
		"OnlyRelated":   {"Related resources without a lock are shared.", related(holder), related(other), false},
		"LockThenRelated": {
			"A lock excludes operations that lock the resource or are about it, not those that only mention it.",
			locking(holder), related(other), false,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Webhook("hold", nil)
			b.Webhook("next", nil)
			asked, open := b.gate("/hold")
			b.Start(nil)
			first := b.Schedule(tc.first)
			b.Received(asked)
			second := b.Schedule(tc.second)
			if tc.waits {
				said := b.waitingFor(tc.second.Resource, first)
				if !strings.Contains(said, "db/7") || !strings.Contains(said, tc.first.Resource.String()) {
					t.Errorf("%s It says: %s", tc.reason, said)
				}
				if n := len(b.Receiver.Counts(second.EffectiveID())); n != 0 {
					t.Errorf("%s It has made %d calls.", tc.reason, n)
				}
				open()
			}
			ended := b.End(second)
			open()
			if v := operations.ViewOf(ended); v.Status != operations.Succeeded {
				t.Errorf("%s outcome %+v", tc.reason, v)
			}
			if c := meta.FindStatusCondition(ended.Status.Conditions,
				v1alpha1.ConditionError); c.Reason != v1alpha1.ReasonSucceeded || c.Message != "" {
				t.Errorf("%s At the end it says %+v", tc.reason, c)
			}
			b.End(first)
		})
	}
}

// TestLockOfAWaitingOperation ends the wait for an operation in every way except its end.
func TestLockOfAWaitingOperation(t *testing.T) {
	tests := map[string]struct {
		reason string
		do     func(b *bench, waiting *v1alpha1.Operation, clock *stopwatch)
		want   string
		says   string
	}{
		"Timeout": {
			reason: "It fails at its own timeout, and names the operation for which it waited.",
			want:   v1alpha1.ReasonTimedOut, says: "it was waiting for the end of operation",
			do: func(b *bench, waiting *v1alpha1.Operation, clock *stopwatch) {
				clock.pass(10 * time.Minute)
				b.Touch(waiting.Name) // wake it, so that it reads the clock
			},
		},
		"Cancel": {
			reason: "It is cancelled at once.", want: v1alpha1.ReasonCanceled,
			do: func(b *bench, waiting *v1alpha1.Operation, _ *stopwatch) {
				if _, err := b.Scheduler.Cancel(b.Ctx, app("other"), waiting.EffectiveID()); err != nil {
					b.T.Fatal(err)
				}
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.Webhook("hold", nil)
			b.Webhook("tell", nil)
			asked, open := b.gate("/hold")
			clock := newStopwatch()
			b.Start(func(o *executor.Options) { o.Now = clock.now })
			first := b.Schedule(operations.Request{
				Resource: app("holder"), Webhooks: []string{"hold"}, Lock: []operations.Resource{database},
			})
			b.Received(asked)
			second := b.Schedule(operations.Request{
				Resource: app("other"), Webhooks: []string{"hold"}, Notify: "tell", Timeout: 5 * time.Minute,
				Lock: []operations.Resource{database},
			})
			third := b.Schedule(operations.Request{Resource: database, Webhooks: []string{"hold"}})
			b.waitingFor(app("other"), first)
			b.waitingFor(database, second) // its direct predecessor
			tc.do(b, second, clock)
			v := operations.ViewOf(b.End(second))
			if v.Reason != tc.want || !strings.Contains(v.Error, tc.says) {
				t.Errorf("%s outcome %s: %s", tc.reason, v.Reason, v.Error)
			}
			if diff := cmp.Diff(map[string]int{"tell.notify": 1}, b.Receiver.Counts(second.EffectiveID())); diff != "" {
				t.Errorf("calls without the lock (-want +got):\n%s", diff)
			}
			b.waitingFor(database, first) // the predecessor of the deleted one
			open()
			b.End(first)
			if v := operations.ViewOf(b.End(third)); v.Status != operations.Succeeded {
				t.Errorf("outcome %+v", v)
			}
		})
	}
}

// TestLockOfADeletedOperation deletes operations that hold a lock or wait for one. Their successors do not wait for
// deleted operations.
func TestLockOfADeletedOperation(t *testing.T) {
	b := setup(t)
	b.Webhook("hold", nil)
	b.Webhook("next", nil)
	asked, _ := b.gate("/hold")
	b.Start(nil)
	lock := []operations.Resource{database}
	first := b.Schedule(operations.Request{Resource: app(1), Webhooks: []string{"hold"}, Lock: lock})
	b.Received(asked)
	second := b.Schedule(operations.Request{Resource: app(2), Webhooks: []string{"next"}, Lock: lock})
	third := b.Schedule(operations.Request{Resource: app(3), Webhooks: []string{"next"}, Lock: lock})
	b.waitingFor(app(3), second)
	b.Delete(second.Name)
	b.waitingFor(app(3), first)
	b.Delete(first.Name)
	if v := operations.ViewOf(b.End(third)); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
	if n := len(b.Receiver.Counts(second.EffectiveID())); n != 0 {
		t.Errorf("a deleted operation that waited has made %d calls", n)
	}
}

// TestLockAfterACrash stops the executor while one operation holds a lock and others wait. The next executor keeps the
// order.
func TestLockAfterACrash(t *testing.T) {
	b := setup(t)
	b.Webhook("hold", nil)
	asked, open := b.gate("/hold")
	registry := prometheus.NewPedanticRegistry()
	stop := b.Start(func(o *executor.Options) { o.Registerer = registry })
	lock := []operations.Resource{database}
	first := b.Schedule(operations.Request{Resource: app(1), Webhooks: []string{"hold"}, Lock: lock})
	b.Received(asked)
	second := b.Schedule(operations.Request{Resource: app(2), Webhooks: []string{"hold"}, Lock: lock})
	b.waitingFor(app(2), first)
	if n := gauge(t, registry, "fairlead_operations_waiting_for_lock"); n != 1 {
		t.Errorf("%v operations wait for a lock, want 1", n)
	}
	stop()
	third := b.Schedule(operations.Request{Resource: database, Webhooks: []string{"hold"}})
	b.Start(nil)
	b.Received(asked)
	b.waitingFor(database, second)
	if n := len(b.Receiver.Counts(second.EffectiveID())); n != 0 {
		t.Errorf("the waiting operation has made %d calls", n)
	}
	open()
	for _, op := range []*v1alpha1.Operation{first, second, third} {
		if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
			t.Errorf("outcome %+v", v)
		}
	}
}

// TestLockOrder schedules two operations that exclude each other while no executor runs, and then labels the first. So
// the second has the older version.
func TestLockOrder(t *testing.T) {
	b := setup(t)
	b.Webhook("hold", nil)
	b.Webhook("undo", nil)
	asked, open := b.gate("/hold")
	lock := []operations.Resource{database}
	// A compensation requires a finalizer, whose write gives the operation a newer version, too.
	first := b.Schedule(operations.Request{
		Resource: app(1), Webhooks: []string{"hold"}, Compensate: []string{"undo"},
		Lock: lock,
	})
	second := b.Schedule(operations.Request{Resource: app(2), Webhooks: []string{"hold"}, Lock: lock})
	b.Touch(first.Name)
	b.Start(nil)
	b.Received(asked)
	b.waitingFor(app(1), second)
	if n := b.Receiver.Counts(second.EffectiveID())["hold"]; n != 1 {
		t.Errorf("the second one was called %d times", n)
	}
	third := b.Schedule(operations.Request{Resource: database, Webhooks: []string{"hold"}, Compensate: []string{"undo"}})
	b.waitingFor(database, first)
	open()
	for _, op := range []*v1alpha1.Operation{second, first, third} {
		if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
			t.Errorf("outcome %+v", v)
		}
	}
}

// TestLockRace lets two executors run operations that lock each other out in all ways and are scheduled at once. Each
// executor makes every call. No resource is ever in use by two operations.
func TestLockRace(t *testing.T) {
	b := setup(t)
	const locked, n = 4, 40
	hands := &hands{
		t: t, claims: make(map[string][]string), busy: make(map[string]string),
		done: make(map[string]chan struct{}),
	}
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) {
		hands.work(strings.Split(r.Header.Get("Idempotency-Key"), ".")[1])
	}
	b.Webhook("work", nil)
	b.Start(nil)
	b.Start(nil)
	var all sync.WaitGroup
	for i := range n {
		r := operations.Request{
			ID: fmt.Sprint("op-", i), Resource: app(i), Type: operations.Update,
			Webhooks: []string{"work"},
		}
		claim := []string{r.Resource.String()} // the first few are about resources that others lock
		for j := range locked {
			if i != j && (i>>j)%3 == 1 {
				r.Lock = append(r.Lock, app(j))
				claim = append(claim, app(j).String())
			}
		}
		hands.mu.Lock()
		hands.claims[r.ID] = claim
		hands.mu.Unlock()
		all.Go(func() {
			if _, err := b.Scheduler.Schedule(b.Ctx, r); err != nil {
				t.Error(err)
				return
			}
			if v, err := b.Scheduler.Wait(b.Ctx, r.Resource, r.ID, nil); err != nil || v.Status != operations.Succeeded {
				t.Errorf("outcome %+v, %v", v, err)
			}
		})
	}
	all.Wait()
}

// hands is a receiver that does the work of an operation once. It fails the test if two work on one resource.
type hands struct {
	t      *testing.T
	mu     sync.Mutex
	claims map[string][]string      // the resources of each operation
	busy   map[string]string        // the operation of each resource
	done   map[string]chan struct{} // closed when the work of an operation is done
}

func (h *hands) work(id string) {
	h.mu.Lock()
	done, again := h.done[id]
	if again {
		h.mu.Unlock()
		<-done // as an idempotent receiver does
		return
	}
	done = make(chan struct{})
	h.done[id] = done
	for _, resource := range h.claims[id] {
		if by := h.busy[resource]; by != "" {
			h.t.Errorf("%s is in use by %s and %s", resource, by, id)
		}
		h.busy[resource] = id
	}
	h.mu.Unlock()
	<-time.After(5 * time.Millisecond) // the work
	h.mu.Lock()
	for _, resource := range h.claims[id] {
		delete(h.busy, resource)
	}
	h.mu.Unlock()
	close(done)
}
