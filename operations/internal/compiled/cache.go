package compiled

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/fair"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

var (
	// ErrNoWebhook means that a Webhook does not exist.
	ErrNoWebhook = errors.New("webhook does not exist")
	// ErrCompiling means that a Webhook is not compiled yet. The caller is woken when it is.
	ErrCompiling = errors.New("webhook is not compiled yet")
)

// Cache compiles each version of a Webhook once and keeps the result. Compiling runs code of tenants. It runs outside
// of the lock and of the workers of operations, for each namespace one Webhook after the other
// (webhook.Client.Compile). When the cache is full, it evicts compiled Webhooks of the largest namespace. It is safe
// for concurrent use.
type Cache struct {
	store    *cache.Store
	webhooks cache.View[v1alpha1.Webhook]
	compile  func(context.Context, webhook.Definition) (*webhook.Compiled, error)
	most     int // weight of all cached Webhooks

	pinned pinned

	mu        sync.Mutex
	known     map[cache.Key]*hook
	compiled  fair.Queue[string, *hook] // by namespace, the least recently used first
	requested fair.Queue[string, *hook] // by operations, by namespace
	working   map[string]bool           // namespaces with a goroutine that compiles
	workers   *fair.Workers
}

// Times are the timeouts and intervals of a Webhook.
type Times struct {
	Timeout time.Duration // of the Webhook as a whole
	Try     time.Duration // of one try or poll
	// Retry and Poll apply unless the receiver asks for another delay.
	Retry backoff.Policy
	Poll  time.Duration
}

// Waker is notified when asking again makes sense. It must be usable as a map key.
type Waker interface{ Set() }

// hook is the state of one Webhook, in the version that was last requested.
type hook struct {
	key        cache.Key
	uid        types.UID
	generation int64
	times      Times  // Timeout is 0 if unknown
	version    string // of out
	out        bool   // see Is

	compiled *webhook.Compiled
	err      error
	kept     fair.Item[string, *hook] // in Cache.compiled
	request  fair.Item[string, *hook] // in Cache.requested
	busy     chan struct{}            // closed after compilation; nil unless it runs
	wakes    map[Waker]struct{}
}

// New returns a Cache of the Webhooks of a store. compile is called once for each version, and again after an eviction.
func New(webhooks *cache.Store, compile func(context.Context, webhook.Definition) (*webhook.Compiled, error)) *Cache {
	return &Cache{
		store: webhooks, webhooks: cache.Of[v1alpha1.Webhook](webhooks), compile: compile, most: maxHooks,
		known: make(map[cache.Key]*hook), working: make(map[string]bool), workers: fair.NewWorkers(),
	}
}

// Get returns the compiled Webhook. Errors: ErrNoWebhook; ErrCompiling, after which n is set when asking again makes
// sense; a *webhook.FieldError that names the field.
func (h *Cache) Get(key cache.Key, n Waker) (*webhook.Compiled, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.look(key)
	switch {
	case k == nil:
		return nil, noWebhook(key)
	case k.kept.Queued():
		k.kept.MoveToEnd()
		return k.compiled, k.err
	}
	if k.wakes == nil {
		k.wakes = make(map[Waker]struct{})
	}
	k.wakes[n] = struct{}{}
	h.enqueue(k)
	return nil, ErrCompiling
}

// Await is Get, but waits until the Webhook is compiled. The result is the first to be evicted.
func (h *Cache) Await(ctx context.Context, key cache.Key) (*webhook.Compiled, error) {
	for {
		h.mu.Lock()
		k := h.look(key)
		switch {
		case k == nil:
			h.mu.Unlock()
			return nil, noWebhook(key)
		case k.kept.Queued():
			defer h.mu.Unlock()
			return k.compiled, k.err
		case k.busy == nil:
			return h.make(ctx, k, false)
		}
		busy := k.busy
		h.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func noWebhook(key cache.Key) error { return fmt.Errorf("%w: %s", ErrNoWebhook, key.Name) }

// Times returns the Times of a Webhook without compiling it, or false if it does not exist.
func (h *Cache) Times(key cache.Key) (Times, bool) {
	h.mu.Lock()
	k := h.look(key)
	var known Times
	if k != nil {
		known = k.times
	}
	h.mu.Unlock()
	if k == nil || known.Timeout > 0 {
		return known, k != nil
	}
	w, err := h.webhooks.Get(key)
	if err != nil {
		return Times{}, false
	}
	known = timesOf(&w.Spec)
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.look(key); k != nil && k.uid == w.UID && k.generation == w.Generation {
		k.times = known
	}
	return known, true
}

// timesOf also handles objects without server-side defaults.
func timesOf(s *v1alpha1.WebhookSpec) Times {
	or := func(d, byDefault time.Duration) time.Duration {
		if d <= 0 {
			return byDefault
		}
		return d
	}
	return Times{
		Timeout: min(or(s.Timeout.Duration, v1alpha1.DefaultWebhookTimeout), webhook.MaxTimeout),
		Try:     min(or(s.RequestTimeout.Duration, v1alpha1.DefaultRequestTimeout), webhook.MaxRequestTimeout),
		Retry: backoff.Policy{
			Base: or(s.Retry.InitialInterval.Duration, v1alpha1.DefaultInitialInterval),
			Cap:  or(s.Retry.MaxInterval.Duration, v1alpha1.DefaultMaxInterval),
		},
		Poll: max(or(s.Poll.Interval.Duration, v1alpha1.DefaultPollInterval), webhook.MinInterval),
	}
}

// Is returns the result of the function of for a Webhook. It calls of once for each version. It returns false if the
// Webhook does not exist.
func (h *Cache) Is(key cache.Key, of func(*v1alpha1.Webhook) bool) bool {
	record, ok := h.store.Get(key)
	if !ok {
		return false
	}
	h.mu.Lock()
	k := h.known[key]
	if k != nil && k.version == record.Version() {
		defer h.mu.Unlock()
		return k.out
	}
	h.mu.Unlock()
	w, err := store.As[v1alpha1.Webhook](record)
	if err != nil {
		return false
	}
	out := of(w)
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.look(key); k != nil {
		k.version, k.out = record.Version(), out
	}
	return out
}

// look returns the hook for the present version of a Webhook, or nil if it does not exist.
func (h *Cache) look(key cache.Key) *hook {
	record, ok := h.store.Get(key)
	if !ok {
		h.drop(key)
		return nil
	}
	k := h.known[key]
	if k == nil {
		k = &hook{key: key, uid: record.UID(), generation: record.Generation()}
		k.kept.Value, k.request.Value = k, k
		h.known[key] = k
	}
	if k.uid != record.UID() || k.generation != record.Generation() {
		h.evict(k)
		k.uid, k.generation, k.times = record.UID(), record.Generation(), Times{}
	}
	return k
}

// Forget drops a deleted Webhook.
func (h *Cache) Forget(key cache.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.store.Get(key); !ok {
		h.drop(key)
	}
}

func (h *Cache) drop(key cache.Key) {
	if k := h.known[key]; k != nil {
		h.evict(k)
		delete(h.known, key)
	}
}

// enqueue schedules the compilation of a Webhook.
func (h *Cache) enqueue(k *hook) {
	if k.request.Queued() || k.busy != nil {
		return
	}
	namespace := k.key.Namespace
	h.requested.Add(namespace, &k.request)
	if !h.working[namespace] {
		h.working[namespace] = true
		h.workers.Add(func(ctx context.Context) { h.work(ctx, namespace) })
	}
}

// Run compiles requested Webhooks until the context ends.
func (h *Cache) Run(ctx context.Context) { h.workers.Run(ctx) }

// work compiles the requested Webhooks of one namespace.
func (h *Cache) work(ctx context.Context, namespace string) {
	for {
		h.mu.Lock()
		request := h.requested.Line(namespace).First()
		if request == nil || ctx.Err() != nil {
			delete(h.working, namespace)
			h.mu.Unlock()
			return
		}
		request.Remove()
		k := request.Value
		if h.known[k.key] != k || k.kept.Queued() || k.busy != nil { // the goroutine that compiles it wakes the waiters
			wakes := k.take()
			h.mu.Unlock()
			wakeAll(wakes)
			continue
		}
		_, _ = h.make(ctx, k, true) // the hook keeps the error
	}
}

// make compiles a Webhook and caches the result, as most recently used if used is true, else as least recently used.
// The caller holds mu, which make releases.
func (h *Cache) make(ctx context.Context, k *hook, used bool) (compiled *webhook.Compiled, err error) {
	k.busy = make(chan struct{})
	h.mu.Unlock()
	w, err := h.webhooks.Get(k.key)
	if err != nil {
		err = noWebhook(k.key)
	} else if compiled, err = h.compileLight(ctx, definition(w)); err != nil {
		err = fmt.Errorf("webhook %s: %w", k.key.Name, err)
	}
	h.mu.Lock()
	close(k.busy)
	k.busy = nil
	if w != nil && ctx.Err() == nil && h.look(k.key) == k && k.uid == w.UID && k.generation == w.Generation &&
		!k.kept.Queued() {
		k.compiled, k.err = compiled, err
		h.keep(k, compiled, used)
	}
	wakes := k.take()
	h.mu.Unlock()
	wakeAll(wakes)
	return compiled, err
}

// take removes and returns the waiters.
func (k *hook) take() map[Waker]struct{} {
	wakes := k.wakes
	k.wakes = nil
	return wakes
}

func wakeAll(wakes map[Waker]struct{}) {
	for n := range wakes {
		n.Set()
	}
}

// keep caches a compiled Webhook, and evicts others if necessary.
func (h *Cache) keep(k *hook, compiled *webhook.Compiled, used bool) {
	if k.kept.Weight = leastWeight; compiled != nil {
		k.kept.Weight = weigh(compiled.Definition())
	}
	if used {
		h.compiled.Add(k.key.Namespace, &k.kept)
	} else {
		h.compiled.AddFirst(k.key.Namespace, &k.kept)
	}
	for h.compiled.Weight() > h.most {
		largest := h.compiled.Largest()
		if largest.Len() < 2 {
			return // keep at least one, or none could ever be used
		}
		h.evict(largest.First().Value)
	}
}

// evict drops the compiled form of a Webhook.
func (h *Cache) evict(k *hook) {
	k.kept.Remove()
	k.compiled, k.err = nil, nil
}
