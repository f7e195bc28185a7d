package compiled

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/share"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

var (
	// ErrNoWebhook says that a Webhook does not exist.
	ErrNoWebhook = errors.New("webhook does not exist")
	// ErrCompiling says that a Webhook is not compiled yet. Who has asked is woken when it is.
	ErrCompiling = errors.New("webhook is not compiled yet")
)

// Cache keeps Webhooks compiled, each version once. Compiling is code of tenants: it is done outside of the lock and of
// the workers of operations, for each namespace one after the other, when it is its turn (webhook.Client.Compile). What
// is compiled is dropped again when all together would be too large, of the namespace that has the most. It is safe for
// concurrent use.
type Cache struct {
	store    *cache.Store
	webhooks cache.View[v1alpha1.Webhook]
	compile  func(context.Context, webhook.Definition) (*webhook.Compiled, error)
	most     int // weight of all that is kept

	pins pins

	mu     sync.Mutex
	known  map[cache.Key]*hook
	spaces map[string]*hookSpace
	weight int
	crew   *share.Crew // compiles
}

// Times are how long a Webhook takes, and how far its tries and polls are apart.
type Times struct {
	Timeout time.Duration // of the Webhook as a whole
	Try     time.Duration // of one try or poll
	// What is waited where the receiver has not asked for anything.
	Retry backoff.Policy
	Poll  time.Duration
}

// Waker is told that it makes sense to ask again. It is a key of maps.
type Waker interface{ Set() }

// hook is what is known of one Webhook, in the version that was asked for last.
type hook struct {
	key        cache.Key
	uid        types.UID
	generation int64
	times      Times  // Timeout is 0: not known yet
	version    string // of which out is known
	out        bool   // see Is

	compiled *webhook.Compiled
	err      error
	kept     *list.Element // of hookSpace.recent; nil: it has to be compiled
	weight   int
	queued   bool          // it is in hookSpace.queue
	busy     chan struct{} // closed when it has been compiled; nil while nobody does it
	wakes    map[Waker]struct{}
}

// hookSpace are the Webhooks of one namespace.
type hookSpace struct {
	namespace string
	recent    list.List // of *hook that are compiled, the one used last first
	weight    int
	queue     []*hook // that operations wait for
	working   bool
}

// New returns a Cache of the Webhooks of a store. compile is asked for each version once, unless it was dropped since.
func New(webhooks *cache.Store, compile func(context.Context, webhook.Definition) (*webhook.Compiled, error)) *Cache {
	return &Cache{
		store: webhooks, webhooks: cache.Of[v1alpha1.Webhook](webhooks), compile: compile, most: maxHooks,
		known: make(map[cache.Key]*hook), spaces: make(map[string]*hookSpace), crew: share.NewCrew(),
	}
}

// Get returns the Webhook ready for calls. Errors: ErrNoWebhook; ErrCompiling, and then n is set when it makes sense to
// ask again; a *webhook.FieldError that names the field.
func (h *Cache) Get(key cache.Key, n Waker) (*webhook.Compiled, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.look(key)
	switch {
	case k == nil:
		return nil, noWebhook(key)
	case k.kept != nil:
		h.spaces[key.Namespace].recent.MoveToFront(k.kept)
		return k.compiled, k.err
	}
	if k.wakes == nil {
		k.wakes = make(map[Waker]struct{})
	}
	k.wakes[n] = struct{}{}
	h.enqueue(k)
	return nil, ErrCompiling
}

// Await is Get for those who have the time to wait. What is compiled for it is the first to be dropped again.
func (h *Cache) Await(ctx context.Context, key cache.Key) (*webhook.Compiled, error) {
	for {
		h.mu.Lock()
		k := h.look(key)
		switch {
		case k == nil:
			h.mu.Unlock()
			return nil, noWebhook(key)
		case k.kept != nil:
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

// Times returns those of a Webhook, which needs no compiling; false if it does not exist.
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

// timesOf holds for objects to which no server has given their defaults, too.
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

// Is tells what of says of a Webhook, which is asked once for each version of it. It is false for one that does not
// exist.
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

// look returns what is known of a Webhook in its present version, nil if it does not exist.
func (h *Cache) look(key cache.Key) *hook {
	record, ok := h.store.Get(key)
	if !ok {
		h.drop(key)
		return nil
	}
	k := h.known[key]
	if k == nil {
		k = &hook{key: key, uid: record.UID(), generation: record.Generation()}
		h.known[key] = k
	}
	if k.uid != record.UID() || k.generation != record.Generation() {
		h.evict(k)
		k.uid, k.generation, k.times = record.UID(), record.Generation(), Times{}
	}
	return k
}

// Forget drops a Webhook that is no more.
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

func (h *Cache) space(namespace string) *hookSpace {
	s := h.spaces[namespace]
	if s == nil {
		s = &hookSpace{namespace: namespace}
		h.spaces[namespace] = s
	}
	return s
}

// enqueue has a Webhook compiled.
func (h *Cache) enqueue(k *hook) {
	if k.queued || k.busy != nil {
		return
	}
	k.queued = true
	s := h.space(k.key.Namespace)
	if s.queue = append(s.queue, k); s.working {
		return
	}
	s.working = true
	h.crew.Add(func(ctx context.Context) { h.work(ctx, s) })
}

// Run compiles what operations wait for, until the context ends.
func (h *Cache) Run(ctx context.Context) { h.crew.Run(ctx) }

// work compiles what waits in one namespace.
func (h *Cache) work(ctx context.Context, s *hookSpace) {
	for {
		h.mu.Lock()
		if len(s.queue) == 0 || ctx.Err() != nil {
			s.working = false
			h.leave(s)
			h.mu.Unlock()
			return
		}
		k := s.queue[0]
		s.queue = s.queue[1:]
		k.queued = false
		if h.known[k.key] != k || k.kept != nil || k.busy != nil { // who compiles it wakes those that wait
			wakes := k.take()
			h.mu.Unlock()
			wakeAll(wakes)
			continue
		}
		_, _ = h.make(ctx, k, true) // it is kept
	}
}

// make compiles a Webhook and keeps what came of it, at the place of one that was just used, or at that of one that was
// not. The caller holds mu, which is released.
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
		k.kept == nil {
		k.compiled, k.err = compiled, err
		h.keep(k, compiled, used)
	}
	wakes := k.take()
	h.mu.Unlock()
	wakeAll(wakes)
	return compiled, err
}

// take returns those who wait, who ask again.
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

// keep remembers what is compiled, and makes room for it.
func (h *Cache) keep(k *hook, compiled *webhook.Compiled, used bool) {
	s, weight := h.space(k.key.Namespace), leastWeight
	if compiled != nil {
		weight = weigh(compiled.Definition())
	}
	if used {
		k.kept = s.recent.PushFront(k)
	} else {
		k.kept = s.recent.PushBack(k)
	}
	k.weight = weight
	s.weight += weight
	h.weight += weight
	for h.weight > h.most {
		var largest *hookSpace
		for _, s := range h.spaces {
			if largest == nil || s.weight > largest.weight {
				largest = s
			}
		}
		if largest.recent.Len() < 2 {
			return // one is always there, or nobody could use it
		}
		h.evict(largest.recent.Back().Value.(*hook))
	}
}

// evict drops what is compiled of a Webhook.
func (h *Cache) evict(k *hook) {
	if k.kept == nil {
		return
	}
	s := h.spaces[k.key.Namespace]
	s.recent.Remove(k.kept)
	s.weight -= k.weight
	h.weight -= k.weight
	k.kept, k.compiled, k.err, k.weight = nil, nil, nil, 0
	h.leave(s)
}

// leave forgets a namespace that has nothing here.
func (h *Cache) leave(s *hookSpace) {
	if s.recent.Len() == 0 && !s.working {
		delete(h.spaces, s.namespace)
	}
}
