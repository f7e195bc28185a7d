package executor_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/shard"
)

// allShards is a group whose only member holds every slot.
type allShards struct{ layout shard.Layout }

func (s allShards) Layout() shard.Layout { return s.layout }
func (allShards) Fence(int) error        { return nil }

func (allShards) FenceOf(string, types.UID) error { return nil }

func TestShardsByNamespaceOnly(t *testing.T) {
	b := setup(t)
	_, err := executor.New(executor.Options{
		Calls: b.Calls, Operations: b.Prepare(b.Config, nil).Operations, Webhooks: b.Prepare(b.Config, nil).Operations,
		Secrets: b.Prepare(b.Config, nil).Operations, Shards: allShards{shard.Layout{By: shard.UID}},
	})
	if err == nil || !strings.Contains(err.Error(), "operations are shared by namespace") {
		t.Errorf("it was made: %v", err)
	}
	if err := b.Prepare(b.Config, nil).Gain(b.Ctx, shard.Layout{}.All()); err == nil {
		t.Error("an executor without Shards accepts slots")
	}
}

// TestLose: a slot that leaves waits for the call under way, records its result, and starts no other call. Its
// operation continues when the slot returns, and every call is made once.
func TestLose(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 4), make(chan struct{})
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, _ int) {
		asked <- path
		operationbed.Pause(r, answer)
	}
	b.Webhook("first", nil)
	b.Webhook("second", nil)
	all := shard.Layout{}.All()
	r := b.Prepare(b.Config, func(o *executor.Options) { o.Shards = allShards{} })
	r.Begin()
	if err := r.Gain(b.Ctx, all); err != nil {
		t.Fatal(err)
	}
	op := b.Schedule(operations.Request{Webhooks: []string{"first", "second"}})
	b.Received(asked)
	quiet := shard.Layout{}.Set()
	var busy bool
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		r.Lose(b.Ctx, all, func(slots shard.Set) {
			if quiet = quiet.Union(slots); quiet.Holds(shard.Layout{}.SlotOf(b.Namespace, "")) {
				select {
				case <-answer:
				default:
					busy = true
				}
			}
			if quiet.Len() == all.Len()-1 { // all slots except that of the call
				close(answer)
			}
		})
	}()
	<-lost
	if busy || quiet != all {
		t.Errorf("quiet are %s, that of the call before its end: %t", quiet, busy)
	}
	if got := b.Get().Status.Webhooks; len(got) != 1 || got[0].State != v1alpha1.PhaseSuccess {
		t.Errorf("recorded is %+v", got)
	}
	if runs, _ := r.Runs(); runs != 0 {
		t.Errorf("%d operations of lost slots run", runs)
	}
	if err := r.Gain(b.Ctx, all); err != nil {
		t.Fatal(err)
	}
	if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess {
		t.Errorf("it became %+v", got.Status)
	}
	if diff := cmp.Diff(map[string]int{"first": 1, "second": 1}, b.Receiver.Counts(op.EffectiveID())); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}

// TestLoseAtOnce: losing a slot at once cancels its running calls. No call is compensated or fails: the next
// holder makes the call again.
func TestLoseAtOnce(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.Receiver.Answer = func(_ http.ResponseWriter, r *http.Request, path string, call int) {
		asked <- path
		if path == "/hang" && call == 1 {
			<-r.Context().Done()
		}
	}
	for _, name := range []string{"good", "hang", "undo", "tell"} {
		b.Webhook(name, nil)
	}
	all := shard.Layout{}.All()
	r := b.Prepare(b.Config, func(o *executor.Options) { o.Shards = allShards{} })
	r.Begin()
	if err := r.Gain(b.Ctx, all); err != nil {
		t.Fatal(err)
	}
	op := b.Schedule(operations.Request{
		Webhooks: []string{"good", "hang"}, Compensate: []string{"undo"}, Notify: "tell",
	})
	for b.Received(asked) != "/hang" {
	}
	ctx, cancel := context.WithCancelCause(b.Ctx)
	cancel(errors.New("the slots were lost"))
	r.Lose(ctx, all, func(shard.Set) {})
	if got := b.Get().Status; got.Phase != v1alpha1.PhaseInProgress || len(got.Compensations) > 0 {
		t.Errorf("it became %+v", got)
	}
	if err := r.Gain(b.Ctx, all); err != nil {
		t.Fatal(err)
	}
	if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess {
		t.Errorf("it became %+v", got.Status)
	}
	want := map[string]int{"good": 1, "hang": 2, "tell.notify": 1}
	if diff := cmp.Diff(want, b.Receiver.Counts(op.EffectiveID())); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}
