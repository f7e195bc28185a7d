package executor_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
	"github.com/fairlead-io/fairlead/shard"
)

// allShards is a group whose only member holds every slot.
type allShards struct{ layout shard.Layout }

func (s allShards) Layout() shard.Layout { return s.layout }
func (allShards) Fence(int) error        { return nil }

func TestShardsByNamespaceOnly(t *testing.T) {
	b := setup(t)
	_, err := executor.New(executor.Options{
		Calls: b.calls, Operations: b.prepare(b.config, nil).operations, Webhooks: b.prepare(b.config, nil).operations,
		Secrets: b.prepare(b.config, nil).operations, Shards: allShards{shard.Layout{By: shard.UID}},
	})
	if err == nil || !strings.Contains(err.Error(), "operations are shared by namespace") {
		t.Errorf("it was made: %v", err)
	}
	if err := b.prepare(b.config, nil).Gain(b.ctx, shard.Layout{}.All()); err == nil {
		t.Error("an executor without Shards works on some slots")
	}
}

// TestLose: a slot that leaves waits for the call under way, records what that brings, and begins no other; nothing of it
// goes on until it comes again, and then every call has been made once.
func TestLose(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 4), make(chan struct{})
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		asked <- path
		pause(r, answer)
	}
	b.webhook("first", nil)
	b.webhook("second", nil)
	all := shard.Layout{}.All()
	r := b.prepare(b.config, func(o *executor.Options) { o.Shards = allShards{} })
	r.run()
	if err := r.Gain(b.ctx, all); err != nil {
		t.Fatal(err)
	}
	op := b.schedule(operation.Request{Webhooks: []string{"first", "second"}})
	b.received(asked)
	quiet := shard.Layout{}.Set()
	var busy bool
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		r.Lose(b.ctx, all, func(slots shard.Set) {
			if quiet = quiet.Union(slots); quiet.Holds(shard.Layout{}.SlotOf(b.namespace, "")) {
				select {
				case <-answer:
				default:
					busy = true
				}
			}
			if quiet.Len() == all.Len()-1 { // all but that of the call
				close(answer)
			}
		})
	}()
	<-lost
	if busy || quiet != all {
		t.Errorf("quiet are %s, that of the call before its end: %t", quiet, busy)
	}
	if got := b.get().Status.Webhooks; len(got) != 1 || got[0].State != v1alpha1.PhaseSuccess {
		t.Errorf("recorded is %+v", got)
	}
	if runs, _ := r.Runs(); runs != 0 {
		t.Errorf("%d operations run that are not here", runs)
	}
	if err := r.Gain(b.ctx, all); err != nil {
		t.Fatal(err)
	}
	if got := b.end(op); got.Status.Phase != v1alpha1.PhaseSuccess {
		t.Errorf("it became %+v", got.Status)
	}
	if diff := cmp.Diff(map[string]int{"first": 1, "second": 1}, b.receiver.counts(op.EffectiveID())); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}

// TestLoseAtOnce: what runs of a slot that was lost is cut off. Nothing is compensated and nothing has failed: who gains
// it makes the call again.
func TestLoseAtOnce(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.receiver.answer = func(_ http.ResponseWriter, r *http.Request, path string, call int) {
		asked <- path
		if path == "/hang" && call == 1 {
			<-r.Context().Done()
		}
	}
	for _, name := range []string{"good", "hang", "undo", "tell"} {
		b.webhook(name, nil)
	}
	all := shard.Layout{}.All()
	r := b.prepare(b.config, func(o *executor.Options) { o.Shards = allShards{} })
	r.run()
	if err := r.Gain(b.ctx, all); err != nil {
		t.Fatal(err)
	}
	op := b.schedule(operation.Request{
		Webhooks: []string{"good", "hang"}, Compensate: []string{"undo"}, Notify: "tell",
	})
	for b.received(asked) != "/hang" {
	}
	ctx, cancel := context.WithCancelCause(b.ctx)
	cancel(errors.New("the slots were lost"))
	r.Lose(ctx, all, func(shard.Set) {})
	if got := b.get().Status; got.Phase != v1alpha1.PhaseInProgress || len(got.Compensations) > 0 {
		t.Errorf("it became %+v", got)
	}
	if err := r.Gain(b.ctx, all); err != nil {
		t.Fatal(err)
	}
	if got := b.end(op); got.Status.Phase != v1alpha1.PhaseSuccess {
		t.Errorf("it became %+v", got.Status)
	}
	want := map[string]int{"good": 1, "hang": 2, "tell.notify": 1}
	if diff := cmp.Diff(want, b.receiver.counts(op.EffectiveID())); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}
