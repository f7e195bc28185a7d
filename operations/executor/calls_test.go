package executor

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/record"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestCalls: an admitted call holds a slot and a permit until it returns or is released. A refused call reports why it
// waits, and is woken when it may try again. It holds nothing after it is withdrawn.
func TestCalls(t *testing.T) {
	t.Parallel()
	w := aWebhook("hook", "2")
	w.Spec.Request.URL, w.Spec.Concurrency = "https://127.0.0.1:1/", 2 // an address that is never called
	st := webhookStore(t, w)
	endpoints, err := webhook.New(webhook.Options{Resolver: &secrets{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer endpoints.Close()
	hooks := compiled.New(st, endpoints.Compile)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		hooks.Run(ctx)
	}()
	defer func() {
		cancel()
		<-done
	}()
	key := store.Key{Namespace: "ns", Name: "hook"}
	hook, err := hooks.Await(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := newOwnership(nil, nil, call.Policy{})
	if err != nil {
		t.Fatal(err)
	}
	own.base = ctx
	own.slots.Gain(own.layout().All())
	_, rate := newBudgets(Budget{Calls: -1}, slog.New(slog.DiscardHandler))
	delivered := make(chan returnedCall, 1)
	c := &calls{
		own: own, hooks: hooks, endpoints: endpoints, rate: rate, slots: fair.NewSlots(64), holders: &holders{},
		tried: &tried{}, attempts: &attempts{}, deliver: func(_ *run, l returnedCall) { delivered <- l }, now: time.Now,
	}

	runs := []*run{{key: store.Key{Namespace: "ns", Name: "a"}}, {key: store.Key{Namespace: "ns", Name: "b"}}}
	admit := func(r *run, id string) (*flight, refusal) {
		return c.admit(r.key, r.party(), queued{&r.news, record.Target{ID: "hook"}}, id, hook, epoch)
	}
	first, _ := admit(runs[0], "1")
	second, _ := admit(runs[0], "2")
	if first == nil || second == nil || len(c.holders.list(key)) != 2 {
		t.Fatal("the first calls are refused, or do not hold permits")
	}
	f, refused := admit(runs[1], "3")
	if f != nil || refused.call != "3" || refused.reason != webhook.WaitConcurrency || !refused.since.Equal(epoch) {
		t.Fatalf("above the concurrency of the endpoint: %+v", refused)
	}
	c.withdraw(runs[1].party(), queued{&runs[1].news, record.Target{ID: "hook"}}, refused.call)
	third, _ := admit(runs[1], "3")
	if third != nil {
		t.Fatal("the concurrency of the endpoint is exceeded")
	}
	second.permit.Release()
	c.release(runs[0].key, runs[0].party(), second)
	if !runs[1].news.take() {
		t.Error("the refused call is not woken when a permit is released")
	}
	if third, refused = admit(runs[1], "3"); third == nil {
		t.Fatalf("refused although a permit is free: %+v", refused)
	}
	third.permit.Release()
	c.release(runs[1].key, runs[1].party(), third)

	c.slots = fair.NewSlots(2) // one for each namespace
	c.slots.Acquire(runs[0].party(), "first", func() {})
	f, refused = admit(runs[1], "4")
	if f != nil || refused.share != sharePlaces || !refused.until.Equal(course.FarFuture) {
		t.Fatalf("without a free slot: %+v", refused)
	}

	c.own.add("ns") // as for a run
	c.start(ctx, runs[0], first, webhook.Call{ID: "1"}, "", time.Now().Add(time.Minute))
	select {
	case l := <-delivered:
		if l.flight != first || l.result.Verdict != webhook.Refused {
			t.Errorf("the result is %+v", l.result)
		}
	case <-t.Context().Done():
	}
	c.underWay.Wait()
	if !runs[0].news.take() || !runs[1].news.take() || len(c.holders.list(key)) != 0 {
		t.Error("the return of a call does not wake its run and the one that waits for its slot, or it holds a permit")
	}
	if f, refused = admit(runs[1], "4"); f == nil {
		t.Fatalf("refused although a slot is free: %+v", refused)
	}
	f.permit.Release()
	c.release(runs[1].key, runs[1].party(), f)
	if u := c.slots.Usage(); u.Waiting != 0 {
		t.Errorf("%d calls wait", u.Waiting)
	}
}
