package executor_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/fairlead-io/fairlead/operation"
	"github.com/fairlead-io/fairlead/operation/executor"
)

// TestFormerKey: a token of the key of before is good for an operation of its namespace that began then, and for
// nothing else.
func TestFormerKey(t *testing.T) {
	b := setup(t)
	asked := make(chan string, 4)
	b.receiver.answer = func(w http.ResponseWriter, r *http.Request, _ string, _ int) {
		asked <- callbackIn(r)
		w.WriteHeader(http.StatusAccepted)
	}
	b.webhook("slow", callbackHook)
	const base = "http://fairlead.example"
	former, key := []byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210fedcba9876543210")
	stop := b.start(func(o *executor.Options) { o.PublicURL, o.CallbackKey = base, former })
	op := b.schedule(operation.Request{Webhooks: []string{"slow"}})
	before := token(b.received(asked))
	b.eventually("recorded", func() bool {
		w := b.get().Status.Webhooks
		return len(w) == 1 && w[0].LastStatusCode == http.StatusAccepted
	})
	stop()

	unknown := errors.New("cannot tell")
	var began bool
	var failed error
	var versions []string
	in := b.namespace
	taker := func() *executor.Taker {
		return b.prepare(b.config, func(o *executor.Options) {
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
	if err := taker().Take(b.ctx, before, true, ""); !errors.Is(err, operation.ErrUnknownCallback) {
		t.Errorf("of an operation that began later: %v", err)
	}
	failed = unknown
	if err := taker().Take(b.ctx, before, true, ""); !errors.Is(err, unknown) {
		t.Errorf("of one of which it is not known: %v", err)
	}
	if versions[0] == "" || versions[0] != op.ResourceVersion {
		t.Errorf("asked about %q, want %q", versions, op.ResourceVersion)
	}
	began, failed, versions = true, nil, nil
	in = "elsewhere"
	if err := taker().Take(b.ctx, before, true, ""); !errors.Is(err, operation.ErrUnknownCallback) || len(versions) > 0 {
		t.Errorf("of another namespace: %v", err)
	}
	if owner, err := taker().Owner(before); !errors.Is(err, operation.ErrUnknownCallback) {
		t.Errorf("it belongs to %q, %v", owner, err)
	}
	in = b.namespace
	if owner, err := taker().Owner(before); err != nil || owner != b.namespace {
		t.Errorf("it belongs to %q, %v", owner, err)
	}
	if err := taker().Take(b.ctx, before+"x", true, ""); !errors.Is(err, operation.ErrUnknownCallback) ||
		len(versions) > 0 {
		t.Errorf("forged: %v", err)
	}
	if err := taker().Take(b.ctx, before, true, ""); err != nil {
		t.Fatal(err)
	}
	b.start(func(o *executor.Options) { o.PublicURL, o.CallbackKey = base, key })
	b.end(op)
	if err := taker().Take(b.ctx, before, true, ""); !errors.Is(err, operation.ErrCallbackUsed) {
		t.Errorf("of one that has ended: %v", err)
	}
	// Tokens are made with the present key only.
	next := b.schedule(operation.Request{Webhooks: []string{"slow"}})
	tok := token(b.received(asked))
	if cb, err := executor.NewCallbacks(base, key).Parse(tok); err != nil || cb.OperationID != next.EffectiveID() {
		t.Errorf("token of the next operation: %+v, %v", cb, err)
	}
}
