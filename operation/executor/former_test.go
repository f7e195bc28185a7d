package executor_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/fairlead-io/fairlead/internal/testbed/operationbed"
	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
)

// TestFormerKey: a token of the key of before is good for an operation of its namespace that began then, and for
// nothing else.
func TestFormerKey(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.Receiver.Answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- operationbed.CallbackIn(r)
		w.WriteHeader(http.StatusAccepted)
	}
	b.Webhook("slow", operationbed.CallbackHook)
	const base = "http://fairlead.example"
	former, key := []byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210")
	stop := b.Start(func(o *executor.Options) { o.PublicURL, o.CallbackKey = base, former })
	op := b.Schedule(operation.Request{Webhooks: []string{"slow"}})
	before := operationbed.Token(b.Received(asked))
	b.Eventually("recorded", func() bool {
		w := b.Get().Status.Webhooks
		return len(w) == 1 && w[0].LastStatusCode == http.StatusAccepted
	})
	stop()

	unknown := errors.New("cannot tell")
	var began bool
	var failed error
	var versions []string
	in := b.Namespace
	taker := func() *executor.Taker {
		return b.Prepare(b.Config, func(o *executor.Options) {
			o.PublicURL, o.CallbackKey = base, key
			o.FormerKey = &executor.FormerKey{
				Key: former, Namespace: in,
				Began: func(_ context.Context, version string) (bool, error) {
					versions = append(versions, version)
					return began, failed
				},
			}
		}).Taker()
	}
	if err := taker().Take(b.Ctx, before, true, ""); !errors.Is(err, operation.ErrUnknownCallback) {
		t.Errorf("of an operation that began later: %v", err)
	}
	failed = unknown
	if err := taker().Take(b.Ctx, before, true, ""); !errors.Is(err, unknown) {
		t.Errorf("of one of which it is not known: %v", err)
	}
	if versions[0] == "" || versions[0] != op.ResourceVersion {
		t.Errorf("asked about %q, want %q", versions, op.ResourceVersion)
	}
	began, failed, versions = true, nil, nil
	in = "elsewhere"
	if err := taker().Take(b.Ctx, before, true, ""); !errors.Is(err, operation.ErrUnknownCallback) || len(versions) > 0 {
		t.Errorf("of another namespace: %v", err)
	}
	if owner, err := taker().Owner(before); !errors.Is(err, operation.ErrUnknownCallback) {
		t.Errorf("it belongs to %q, %v", owner, err)
	}
	in = b.Namespace
	if owner, err := taker().Owner(before); err != nil || owner != b.Namespace {
		t.Errorf("it belongs to %q, %v", owner, err)
	}
	if err := taker().Take(b.Ctx, before+"x", true, ""); !errors.Is(err, operation.ErrUnknownCallback) ||
		len(versions) > 0 {
		t.Errorf("forged: %v", err)
	}
	if err := taker().Take(b.Ctx, before, true, ""); err != nil {
		t.Fatal(err)
	}
	b.Start(func(o *executor.Options) { o.PublicURL, o.CallbackKey = base, key })
	b.End(op)
	if err := taker().Take(b.Ctx, before, true, ""); !errors.Is(err, operation.ErrCallbackUsed) {
		t.Errorf("of one that has ended: %v", err)
	}
	// Tokens are made with the present key only.
	next := b.Schedule(operation.Request{Webhooks: []string{"slow"}})
	tok := operationbed.Token(b.Received(asked))
	if cb, err := executor.NewCallbacks(base, key).Parse(tok); err != nil || cb.OperationID != next.EffectiveID() {
		t.Errorf("token of the next operation: %+v, %v", cb, err)
	}
}
