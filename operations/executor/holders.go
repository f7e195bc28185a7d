package executor

import (
	"slices"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
)

// holders knows which operations hold the places of the Webhooks that bound their calls (spec.concurrency). The zero
// value is ready to use. It is safe for concurrent use.
type holders struct {
	mu sync.Mutex
	of map[store.Key]map[*flight]holding // by Webhook
}

// holding is one place.
type holding struct {
	operation store.Key
	since     time.Time
}

// enter notes that a flight of an operation holds a place, if its Webhook bounds them.
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

// leave notes that a flight of a namespace has given its place back.
func (h *holders) leave(f *flight, namespace string) {
	hook := store.Key{Namespace: namespace, Name: f.target.ID}
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.of[hook], f); len(h.of[hook]) == 0 {
		delete(h.of, hook)
	}
}

// list returns who holds the places of a Webhook, the one that has done so for longest first.
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
