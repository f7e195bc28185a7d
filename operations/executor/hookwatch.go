package executor

import (
	"context"
	"log/slog"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/internal/compiled"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// hookWatcher tells the other parts about changes of Webhooks and of the release of their credentials. It has no state.
type hookWatcher struct {
	store     *store.Store
	status    *hookStatus
	compiled  *compiled.Cache
	endpoints *webhook.Client
	changes   *webhookChanges
	drain     *drainCheck
}

// drainer returns a drainer that wakes the runs that name a Webhook when it appears, changes or is deleted. The
// cost of an event does not depend on the number of operations in its namespace.
func (w *hookWatcher) drainer(ctx context.Context) *store.Drainer {
	return w.store.Drain(store.DrainOptions{
		SubscribeOptions: store.SubscribeOptions{Name: "executor"},
		Consume: each(ctx, func(event *store.Event) {
			w.status.webhookChanged(*event)
			if event.Type == store.Deleted {
				w.compiled.Forget(event.Key)
				w.endpoints.Forget(event.Key.Namespace, event.Key.Name)
			} else {
				w.drain.see(ctx, event.Key)
			}
			if wakesOperations(*event) {
				w.changes.add(event.Key.Namespace, event.Key.Name)
			}
		}),
	})
}

// releaseChanged has a Webhook compiled again after a change of the release of its credentials. It wakes the operations
// that may wait for it.
func (w *hookWatcher) releaseChanged(hook store.Key) {
	w.status.mark(hook, true)
	w.changes.add(hook.Namespace, hook.Name)
}

// drainCheck reports a Webhook whose calls may take longer than the drain. It reports one only. The goroutine of the
// drainer owns it.
type drainCheck struct {
	drain    time.Duration // 0: nothing is reported
	times    func(hook store.Key) (compiled.Times, bool)
	log      *slog.Logger
	reported bool
}

func (c *drainCheck) see(ctx context.Context, hook store.Key) {
	if c.drain == 0 || c.reported {
		return
	}
	if times, ok := c.times(hook); ok && times.Try > c.drain {
		c.reported = true
		c.log.InfoContext(ctx, "calls may take longer than a termination waits for them; those that it cuts off are "+
			"repeated with the same keys", "webhook", hook.String(), "requestTimeout", times.Try, "drain", c.drain)
	}
}

// wakesOperations reports whether operations that name the Webhook have to be woken.
func wakesOperations(event store.Event) bool {
	switch {
	case event.Initial: // runs start after it
		return false
	case event.Type == store.Modified:
		return event.Prior == nil || event.Prior.Generation() != event.Object.Generation() // else only its status has changed
	default:
		return event.Type == store.Added || event.Type == store.Deleted
	}
}
