package executor

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
)

// holders tracks the operations that hold a concurrency permit of a Webhook that bounds its calls (spec.concurrency).
// The zero value is ready to use. It is safe for concurrent use.
type holders struct {
	mu sync.Mutex
	of map[store.Key]map[*flight]holding // by Webhook
}

// holding is a permit that an operation holds.
type holding struct {
	operation store.Key
	since     time.Time
}

// enter records that a flight of an operation holds a permit, if its Webhook bounds its concurrency.
func (h *holders) enter(f *flight, operation store.Key, now time.Time) {
	if f.hook.Definition().Concurrency == 0 {
		return
	}
	hook := store.Key{Namespace: operation.Namespace, Name: f.target.ID}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of == nil {
		h.of = make(map[store.Key]map[*flight]holding)
	}
	if h.of[hook] == nil {
		h.of[hook] = make(map[*flight]holding)
	}
	h.of[hook][f] = holding{operation, now}
}

// leave records that a flight in a namespace has released its permit.
func (h *holders) leave(f *flight, namespace string) {
	hook := store.Key{Namespace: namespace, Name: f.target.ID}
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.of[hook], f); len(h.of[hook]) == 0 {
		delete(h.of, hook)
	}
}

// list returns the holders of the permits of a Webhook, the longest-standing first.
func (h *holders) list(hook store.Key) []holding {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]holding, 0, len(h.of[hook]))
	for _, one := range h.of[hook] {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b holding) int { return a.since.Compare(b.since) })
	return all
}
