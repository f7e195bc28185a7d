package executor

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

// webhookChanges collects changed Webhooks, to wake the operations of a namespace that name them. The first wake-up is
// immediate. Further ones are less frequent the more operations they wake, however often the Webhooks are edited.
type webhookChanges struct {
	seed  maphash.Seed
	added chan struct{} // holds a token while pending may have new entries

	mu      sync.Mutex
	pending map[string]nameSet // by namespace
}

// nameSet is a set of names with false positives: a Bloom filter with one hash.
type nameSet uint64

const (
	// wakePause is the minimal time between two wake-ups of the operations of a namespace. Each woken operation adds
	// wakeEach to it.
	wakePause = time.Second
	wakeEach  = time.Millisecond
)

func newWebhookChanges() *webhookChanges {
	return &webhookChanges{seed: maphash.MakeSeed(), added: make(chan struct{}, 1), pending: make(map[string]nameSet)}
}

func (c *webhookChanges) set(name string) nameSet { return 1 << (maphash.String(c.seed, name) % 64) }

// of returns the names of the Webhooks that an operation may call.
func (c *webhookChanges) of(op *v1alpha1.Operation) (all nameSet) {
	for _, id := range op.Spec.WebhookIDs {
		all |= c.set(id)
	}
	for _, id := range op.Spec.CompensateWebhookIDs {
		all |= c.set(id)
	}
	return all | c.set(op.Spec.NotifyWebhookID)
}

// add records that a Webhook has appeared, changed or was deleted.
func (c *webhookChanges) add(namespace, name string) {
	c.mu.Lock()
	c.pending[namespace] |= c.set(name)
	c.mu.Unlock()
	select {
	case c.added <- struct{}{}:
	default:
	}
}

// run calls wake for the changes of a namespace, until ctx ends. wake returns the number of woken operations.
func (c *webhookChanges) run(ctx context.Context, wake func(namespace string, changed nameSet) (woken int)) {
	notBefore := make(map[string]time.Time)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.added:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		due, next := c.take(notBefore)
		for namespace, changed := range due {
			notBefore[namespace] = time.Now().Add(wakePause + time.Duration(wake(namespace, changed))*wakeEach)
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
	}
}

// take removes and returns the changes of the namespaces whose operations may be woken now. next is the time for those
// that remain, or zero. It deletes past times of notBefore.
func (c *webhookChanges) take(notBefore map[string]time.Time) (due map[string]nameSet, next time.Time) {
	now := time.Now()
	for namespace, until := range notBefore {
		if !until.After(now) {
			delete(notBefore, namespace)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	due = make(map[string]nameSet)
	for namespace, changed := range c.pending {
		if until, waits := notBefore[namespace]; !waits {
			due[namespace] = changed
			delete(c.pending, namespace)
		} else if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	return due, next
}
