package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
)

// callbacks starts an executor that listens for callbacks, and returns its taker.
func (b *bench) callbacks() *executor.Taker {
	var e *executor.Executor
	b.StartWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef")
	}, func(got *executor.Executor) { e = got })
	return e.Taker()
}

func TestCallback(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- operationbed.CallbackIn(r)
		w.WriteHeader(http.StatusAccepted)
	}
	b.Webhook("slow", operationbed.CallbackHook)
	taker := b.callbacks()
	op := b.Schedule(operations.Request{Webhooks: []string{"slow"}})
	tok := operationbed.Token(b.Received(asked))
	b.Eventually("accepted by the receiver", func() bool {
		w := b.Get().Status.Webhooks
		return len(w) == 1 && w[0].LastStatusCode == http.StatusAccepted
	})
	if raw, _ := json.Marshal(b.Get()); strings.Contains(string(raw), tok) {
		t.Error("the token is in the object")
	}
	if err := taker.Take(b.Ctx, tok+"x", true, ""); !errors.Is(err, operations.ErrUnknownCallback) {
		t.Errorf("a forged token: %v", err)
	}
	if err := taker.Take(b.Ctx, tok, false, "no\nroom"); err != nil {
		t.Fatal(err)
	}
	ended := b.End(op)
	if v := operations.ViewOf(ended); v.Status != operations.Failed || v.Reason != v1alpha1.ReasonWebhookFailed ||
		v.Error != "no room" {
		t.Errorf("outcome: %+v", v)
	}
	if err := taker.Take(b.Ctx, tok, true, ""); !errors.Is(err, operations.ErrCallbackUsed) {
		t.Errorf("a token used twice: %v", err)
	}
	// A callback of the previous operation has no effect on the next one.
	next := b.Schedule(operations.Request{Webhooks: []string{"slow"}})
	fresh := operationbed.Token(b.Received(asked))
	if err := taker.Take(b.Ctx, tok, true, ""); !errors.Is(err, operations.ErrCallbackUsed) {
		t.Errorf("a token of the previous operation: %v", err)
	}
	if err := taker.Take(b.Ctx, fresh, true, ""); err != nil {
		t.Fatal(err)
	}
	if v := operations.ViewOf(b.End(next)); v.Status != operations.Succeeded {
		t.Errorf("next outcome: %+v", v)
	}
}

func TestCallbackBeforeTheAnswer(t *testing.T) {
	b := setup(t)
	asked, answer := make(chan string, 1), make(chan struct{})
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, path string, _ int) {
		if path == "/next" {
			return
		}
		asked <- operationbed.CallbackIn(r)
		operationbed.Pause(r, answer)
		w.WriteHeader(http.StatusAccepted)
	}
	b.Webhook("slow", operationbed.CallbackHook)
	b.Webhook("next", nil)
	taker := b.callbacks()
	op := b.Schedule(operations.Request{Webhooks: []string{"slow", "next"}})
	if err := taker.Take(b.Ctx, operationbed.Token(b.Received(asked)), true, ""); err != nil {
		t.Fatal(err)
	}
	close(answer)
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded || v.Progress.Completed != 2 {
		t.Errorf("outcome: %+v", v)
	}
}

// TestCallbacksArePaidFor: writes for callbacks count towards the share of the namespace. They wait while that share is
// used up.
func TestCallbacksArePaidFor(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- operationbed.CallbackIn(r)
		w.WriteHeader(http.StatusAccepted)
	}
	b.Webhook("slow", operationbed.CallbackHook)
	var e *executor.Executor
	registry := prometheus.NewRegistry()
	b.StartWith(func(o *executor.Options) {
		o.PublicURL, o.CallbackKey, o.Registerer = "http://fairlead.example", []byte("0123456789abcdef0123456789abcdef"),
			registry
	}, func(got *executor.Executor) { e = got })
	op := b.Schedule(operations.Request{Webhooks: []string{"slow"}})
	tok := operationbed.Token(b.Received(asked))
	b.Eventually("recorded", func() bool {
		w := b.Get().Status.Webhooks
		return len(w) == 1 && w[0].LastStatusCode == http.StatusAccepted && len(b.Get().Finalizers) > 0
	})
	// The status of the Webhook is charged to the same share, and would wait beside the callback.
	b.Eventually("status of the webhook written", func() bool { return b.Hook("slow").Status.ObservedGeneration > 0 })
	const much = 1e9
	e.Spend(b.Namespace, much)
	take := func(ctx context.Context) chan error {
		taken := make(chan error, 1)
		go func() { taken <- e.Taker().Take(ctx, tok, true, "") }()
		b.Eventually("waiting", func() bool {
			if len(taken) > 0 {
				t.Fatal("it does not wait")
			}
			return share(t, registry, "fairlead_share_waiting", "writes") == 1
		})
		return taken
	}
	impatient, cancel := context.WithCancelCause(b.Ctx)
	why := errors.New("the receiver has gone")
	taken := take(impatient)
	if cancel(why); !errors.Is(<-taken, why) {
		t.Error("it waits for a canceled callback")
	}
	taken = take(b.Ctx)
	e.Spend(b.Namespace, -much)
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	if v := operations.ViewOf(b.End(op)); v.Status != operations.Succeeded {
		t.Errorf("outcome %+v", v)
	}
}
