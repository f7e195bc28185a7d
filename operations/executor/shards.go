package executor

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
	"github.com/fairlead-io/fairlead/shard"
)

// An Executor works on the namespaces of the slots that it has gained and not lost. Without Shards, it gains the only
// slot when Run begins. All knowledge about a slot ends with its tenure: a slot that is gained again is taken over like
// any other (freshness).

// tenancy begins and ends the work on slots. The lock is that of gainedSlots.
type tenancy struct {
	own      *ownership
	fresh    *freshness
	runs     *runs
	engine   *flow.Engine
	trust    *trust
	secrets  *secrets
	status   *hookStatus
	store    *store.Store // of Operations
	webhooks store.View[v1alpha1.Webhook]
	// endpoints has the breakers of Webhooks. Those of a gained slot begin as the former holder has recorded them.
	endpoints *webhook.Client
	// changed starts the run of an operation, if it needs one.
	changed func(ctx context.Context, known *store.Record)
	log     *slog.Logger
	gained  gainedSlots
}

func (t *tenancy) gain(slots shard.Set) {
	t.fresh.gain(slots)
	t.own.slots.Gain(slots)
	t.fresh.ask()
}

// lose ends the work on slots; see Executor.Lose.
func (t *tenancy) lose(ctx context.Context, slots shard.Set, quiet func(shard.Set)) {
	drain := t.own.slots.Lose(slots)
	_, flags := t.runs.of(slots)
	for _, flag := range flags {
		flag.Set() // so that the run ends
	}
	drain.Wait(ctx, t.cutOff, func(slots shard.Set) {
		t.vacate(slots)
		quiet(slots)
	})
}

// cutOff cancels the remaining work of leaving slots.
func (t *tenancy) cutOff(slots shard.Set, cause error) {
	keys, _ := t.runs.of(slots)
	cause = fmt.Errorf("%w: %w", errMoved, cause)
	if len(keys) > 0 {
		t.log.Warn("aborting calls in progress; they will be repeated with the same keys",
			"operations", len(keys), "error", cause)
	}
	for _, key := range keys {
		if fiber, ok := t.engine.Find(key.String()); ok {
			fiber.Cancel(cause)
		}
	}
}

// vacate forgets slots whose work has ended.
func (t *tenancy) vacate(slots shard.Set) {
	of := func(namespace string) bool { return slots.Has(namespace, "") }
	t.fresh.lose(slots)
	t.endpoints.Vacate(of)
	t.trust.forget(of)
	t.secrets.forget(of)
}

// takeOver starts the work on the objects of gained slots that the store has already, until ctx ends.
func (t *tenancy) takeOver(ctx context.Context) {
	for {
		select {
		case <-t.gained.added:
		case <-ctx.Done():
			return
		}
		gained := t.gained.take()
		if gained.IsEmpty() {
			continue
		}
		for key := range t.webhooks.All() {
			if gained.Has(key.Namespace, "") {
				t.status.mark(key, true)
			}
		}
		for known := range t.store.Snapshot().All() {
			if gained.Has(known.Namespace(), "") {
				t.changed(ctx, known)
			}
		}
	}
}
