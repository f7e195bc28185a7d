package executor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestDrain drains an executor while a call is under way. It waits for the answer, records it, and starts no other
// call.
func TestDrain(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 4), make(chan struct{})
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		asked <- path
		operationbed.Pause(r, answer)
	}
	b.Webhook("first", nil)
	b.Webhook("second", nil)
	r := b.Prepare(b.Config, nil)
	r.Begin()
	op := b.Schedule(operations.Request{Webhooks: []string{"first", "second"}})
	b.Received(asked)
	ended, cancel := context.WithCancelCause(b.Ctx)
	cancel(errors.New("no time left"))
	if err := r.Drain(ended); err == nil || !strings.Contains(err.Error(), "the calls of 1 operations: no time left") {
		t.Errorf("while the call is under way: %v", err)
	}
	drained := make(chan error, 1)
	go func() { drained <- r.Drain(b.Ctx) }()
	close(answer)
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
	if got := b.Get().Status.Webhooks; len(got) != 1 || got[0].State != v1alpha1.PhaseSuccess {
		t.Errorf("recorded is %+v", got)
	}
	r.Stop()
	if diff := cmp.Diff(map[string]int{"first": 1}, b.Receiver.Counts(op.EffectiveID())); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
	if err := r.Drain(b.Ctx); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

// TestDrainEndsWithRun: Drain returns when the executor stops, since nothing is left to wait for.
func TestDrainEndsWithRun(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		asked <- path
		<-r.Context().Done()
	}
	b.Webhook("hang", nil)
	r := b.Prepare(b.Config, nil)
	r.Begin()
	b.Schedule(operations.Request{Webhooks: []string{"hang"}})
	b.Received(asked)
	drained := make(chan error, 1)
	go func() { drained <- r.Drain(b.Ctx) }()
	r.Stop()
	for i, err := range []error{<-drained, r.Drain(b.Ctx)} {
		if err == nil || !strings.Contains(err.Error(), "the executor has ended") {
			t.Errorf("drain %d: %v", i+1, err)
		}
	}
}

// TestHandedOver hands operations of all modes from executor to executor at random moments, while some requests to the
// API server fail. Each executor drains first. Every call is made once, and none is canceled.
func TestHandedOver(t *testing.T) {
	seed.Play(t, 3, func(t *testing.T, play uint64) {
		b := setup(t)
		const n, handovers = 30, 8
		var mu sync.Mutex
		made, cut := map[string]int{}, 0
		var taker atomic.Pointer[executor.Taker]
		var receivers sync.WaitGroup
		b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, call int) {
			key := r.Header.Get("Idempotency-Key")
			rnd := seed.Rand(play, key, call)
			if strings.HasPrefix(path, "/jobs/") {
				pauseFor(r, time.Duration(rnd.IntN(20))*time.Millisecond)
				if call < 4 {
					_, _ = io.WriteString(w, `{"status":"IN_PROGRESS"}`)
				} else {
					_, _ = io.WriteString(w, `{"status":"SUCCEEDED"}`)
				}
				return
			}
			mu.Lock()
			made[key]++
			mu.Unlock()
			pauseFor(r, time.Duration(rnd.IntN(40))*time.Millisecond)
			switch path {
			case "/poll":
				w.Header().Set("Location", "/jobs/"+key)
				w.WriteHeader(http.StatusAccepted)
			case "/back":
				tok := operationbed.Token(operationbed.CallbackIn(r))
				receivers.Go(func() { // before the answer, or after it
					for {
						err := taker.Load().Take(b.Ctx, tok, true, "")
						if err == nil || errors.Is(err, operations.ErrCallbackUsed) || b.Ctx.Err() != nil {
							return
						}
					}
				})
				w.WriteHeader(http.StatusAccepted)
			}
			if r.Context().Err() != nil {
				mu.Lock()
				cut++
				mu.Unlock()
			}
		}
		b.Webhook("plain", nil)
		b.Webhook("poll", polled(50*time.Millisecond))
		b.Webhook("back", operationbed.CallbackHook)
		d := &disturber{b: b, seed: play, sent: make(map[string]int)}
		calls := b.Tapped(d.roundTrip)
		start := func() operationbed.Replica {
			r := b.Prepare(b.Config, func(o *executor.Options) {
				o.Calls = calls
				o.Policy = call.Policy{
					Retries: 1, Base: time.Millisecond, Cap: 5 * time.Millisecond,
					Budget: &call.Budget{PerSecond: 1000},
				}
				o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
			})
			taker.Store(r.Taker())
			r.Begin()
			return r
		}
		rnd := rand.New(rand.NewPCG(play, 1))
		now := start()
		ops := make([]*v1alpha1.Operation, n)
		for i := range ops {
			request := operations.Request{Resource: operations.Resource{Type: "app", ID: fmt.Sprint(i)}}
			for _, k := range rnd.Perm(3) {
				request.Webhooks = append(request.Webhooks, []string{"plain", "poll", "back"}[k])
			}
			if i%3 == 0 {
				request.Execution = operations.Parallel
			}
			ops[i] = b.Schedule(request)
			if i%(n/handovers) == 1 {
				if err := now.Drain(b.Ctx); err != nil {
					t.Fatal(err)
				}
				now.Stop()
				now = start()
			}
		}
		want := map[string]int{}
		for _, op := range ops {
			if ended := b.End(op); ended.Status.Phase != v1alpha1.PhaseSuccess {
				t.Errorf("FAIRLEAD_SEED=%d: it became %+v", play, ended.Status)
			}
			for _, id := range op.Spec.WebhookIDs {
				want[webhook.CallID(b.Namespace, op.EffectiveID(), id, webhook.Main)] = 1
			}
		}
		now.Stop()
		receivers.Wait()
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff(want, made); diff != "" || cut > 0 {
			t.Errorf("FAIRLEAD_SEED=%d: %d calls were cut off; calls, -want +got:\n%s", play, cut, diff)
		}
	})
}

func pauseFor(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}
