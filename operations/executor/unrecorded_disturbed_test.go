package executor_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// TestDisturbedLocks runs operations whose first calls need no record, and sometimes one that locks their resources.
// Meanwhile requests fail, watches lag, other writers change, cancel and delete objects, and executors stop and start.
// Before a call is made, every called operation that excludes it has ended.
func TestDisturbedLocks(t *testing.T) {
	seed.Play(t, 1, func(t *testing.T, s uint64) {
		b := setup(t)
		hands := &exclusion{
			b: b, seed: s, known: make(map[string]*claimed), sent: make(map[string]int),
			targets: make(chan operations.Resource),
		}
		b.Receiver.Answer = hands.answer
		b.Webhook("work", nil)
		late := disturb.Config(b.Config, func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil && r.URL.Query().Get("watch") != "" && strings.HasSuffix(r.URL.Path, "/operations") {
				answer.Body = &lateBody{answer.Body, seed.Rand(s, "late", time.Now())}
			}
			return answer, err
		})
		calls := b.Tapped(hands.disturb)
		start := func() (stop func()) {
			r := b.Prepare(late, func(o *executor.Options) {
				o.Calls = calls
				o.Policy = call.Policy{Base: time.Millisecond, Cap: 5 * time.Millisecond, Budget: &call.Budget{PerSecond: 1000}}
			})
			r.Begin()
			return r.Stop
		}
		stop := start()
		var actors sync.WaitGroup
		for i := range exclusionActors {
			actors.Go(func() { hands.act(i) })
		}
		acted := make(chan struct{})
		go func() { actors.Wait(); close(acted) }()
		var locks sync.WaitGroup
		locks.Go(func() { hands.lock(acted) })
		rnd := seed.Rand(s, "restarts")
		for over := false; !over; {
			select {
			case <-acted:
				over = true
			case <-time.After(time.Duration(1000+rnd.IntN(3000)) * time.Millisecond):
				if before := stop; rnd.IntN(2) == 0 {
					stop = start()
					before()
				} else {
					before()
					stop = start()
				}
			}
		}
		locks.Wait()
		stop()
		t.Logf("%d calls, %d of them unrecorded", hands.calls, hands.unrecorded)
	})
}

const exclusionActors, exclusionRounds = 5, 8

// disturb makes a request about an operation fail.
func (x *exclusion) disturb(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	_, name, ok := strings.Cut(r.URL.Path, "/operations/")
	if !ok {
		return next.RoundTrip(r)
	}
	name, _, _ = strings.Cut(name, "/")
	x.mu.Lock()
	x.sent[name]++
	n := x.sent[name]
	x.mu.Unlock()
	fault := disturb.None
	switch seed.Rand(x.seed, "fault", name, n).IntN(30) {
	case 0:
		fault = disturb.Lost
	case 1, 2:
		fault = disturb.AnswerLost
	case 3, 4, 5:
		fault = disturb.Outdated
	}
	return fault.RoundTrip(r, next, func() {
		if r.Method != http.MethodGet {
			x.b.Touch(name)
		}
	})
}

// exclusion is a receiver that detects concurrent operations that exclude each other.
type exclusion struct {
	b    *bench
	seed uint64

	mu         sync.Mutex
	known      map[string]*claimed // by id of the operation
	sent       map[string]int      // requests, by name of the operation
	calls      int
	unrecorded int
	targets    chan operations.Resource // resources of unrecorded calls
}

// claimed is an operation and the resources that it claims.
type claimed struct {
	id        string
	about     operations.Resource
	locks     []operations.Resource
	begun     bool // it has made a call
	abandoned bool // it may end while a call is under way
}

func (c *claimed) excludes(other *claimed) bool {
	for _, mine := range c.locks {
		if mine == other.about || slices.Contains(other.locks, mine) {
			return true
		}
	}
	return slices.Contains(other.locks, c.about)
}

func (x *exclusion) answer(w http.ResponseWriter, r *http.Request, _ string, n int) {
	id := strings.Split(r.Header.Get("Idempotency-Key"), ".")[1]
	var others []claimed
	x.mu.Lock()
	own := x.known[id]
	own.begun = true
	x.calls++
	for _, other := range x.known {
		if other != own && other.begun && !other.abandoned && own.excludes(other) {
			others = append(others, *other)
		}
	}
	x.mu.Unlock()
	for _, other := range others {
		op, err := x.b.Scheduler.Get(x.b.Ctx, other.about)
		if err != nil && x.b.Ctx.Err() == nil && !errors.Is(err, operations.ErrNotFound) {
			x.b.T.Error(err)
		}
		if err == nil && op.EffectiveID() == other.id && !op.Terminal() {
			x.mu.Lock()
			abandoned := x.known[other.id].abandoned
			x.mu.Unlock()
			if !abandoned {
				x.b.T.Errorf("FAIRLEAD_SEED=%d: call %d of %s, locks %v, is made while %s, locks %v, has not ended: %+v",
					x.seed, n, own.about, own.locks, other.about, other.locks, op.Status)
			}
		}
	}
	if op, err := x.b.Scheduler.Get(x.b.Ctx, own.about); err == nil && op.EffectiveID() == id && !op.PickedUp() {
		x.mu.Lock()
		x.unrecorded++
		x.mu.Unlock()
		select {
		case x.targets <- own.about: // another operation is about to lock the resource
		default:
		}
	}
	rnd := seed.Rand(x.seed, "work", id, n)
	work := time.Duration(10+rnd.IntN(40)) * time.Millisecond
	if rnd.IntN(8) == 0 {
		work += 600 * time.Millisecond
	}
	<-time.After(work) // even if the caller has given up
	if rnd.IntN(2) == 0 {
		x.b.Touch(v1alpha1.OperationName(own.about.Type, own.about.ID))
	}
	<-time.After(work)
	if seed.Rand(x.seed, "again", id, n).IntN(6) == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// lock locks the resources of unrecorded calls, one at a time, until acted is closed.
func (x *exclusion) lock(acted <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case target := <-x.targets:
			x.play(&claimed{
				id: fmt.Sprint("lock-", n), about: operations.Resource{Type: "locker", ID: fmt.Sprint(n)},
				locks: []operations.Resource{target, app(n % exclusionActors)},
			}, func(*v1alpha1.Operation) {})
		case <-acted:
			return
		}
	}
}

// act schedules and disturbs operations, one after the other.
func (x *exclusion) act(actor int) {
	b, rnd := x.b, seed.Rand(x.seed, "actor", actor)
	for round := range exclusionRounds {
		c := &claimed{id: fmt.Sprintf("op-%d-%d", actor, round), about: app(actor)}
		x.play(c, func(op *v1alpha1.Operation) {
			for range rnd.IntN(3) {
				<-time.After(time.Duration(rnd.IntN(20)) * time.Millisecond)
				b.Touch(op.Name)
			}
			switch rnd.IntN(12) {
			case 0:
				x.abandon(c)
				if _, err := b.Scheduler.Cancel(b.Ctx, c.about, c.id); err != nil && !errors.Is(err, operations.ErrEnded) {
					b.T.Errorf("FAIRLEAD_SEED=%d: %v", x.seed, err)
				}
			case 1:
				x.abandon(c)
				b.Delete(op.Name)
			}
		})
	}
}

func (x *exclusion) abandon(c *claimed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.abandoned = true
}

// play schedules an operation, disturbs it, and waits for its end.
func (x *exclusion) play(c *claimed, disturb func(*v1alpha1.Operation)) {
	b := x.b
	x.mu.Lock()
	x.known[c.id] = c
	x.mu.Unlock()
	request := operations.Request{
		ID: c.id, Resource: c.about, Type: operations.Update, Webhooks: []string{"work"}, Lock: c.locks,
	}
	op, err := b.Scheduler.Schedule(b.Ctx, request)
	for isDeleted(err) { // the previous one has ended, and is not deleted yet
		<-time.After(10 * time.Millisecond)
		op, err = b.Scheduler.Schedule(b.Ctx, request)
	}
	if err != nil {
		b.T.Errorf("FAIRLEAD_SEED=%d: %v", x.seed, err)
		return
	}
	disturb(op)
	v, err := b.Scheduler.WaitFor(b.Ctx, op, nil)
	switch {
	case c.abandoned && errors.Is(err, operations.ErrNotFound):
	case err != nil:
		b.T.Errorf("FAIRLEAD_SEED=%d: %s: %v", x.seed, c.id, err)
	case v.Status != operations.Succeeded && !(c.abandoned && v.Reason == v1alpha1.ReasonCanceled):
		b.T.Errorf("FAIRLEAD_SEED=%d: it became %+v", x.seed, v)
	}
}

func isDeleted(err error) bool {
	var busy *operations.InProgressError
	return errors.As(err, &busy) && busy.Running.DeletionTimestamp != nil
}

// lateBody is an answer that arrives in delayed pieces.
type lateBody struct {
	io.ReadCloser
	rnd interface{ IntN(int) int }
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	<-time.After(time.Duration(b.rnd.IntN(40)) * time.Millisecond)
	return n, err
}
