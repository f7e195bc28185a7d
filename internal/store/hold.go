package store

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// holds are the kinds whose sources must wait. The zero value holds no kind.
type holds struct {
	mu    sync.Mutex // a leaf
	ready map[schema.GroupKind][]<-chan struct{}
}

// Hold delays the sources of a kind, in all its versions: none is opened before ready is closed. For example, the
// sources of a custom resource wait for its conversion. A source that is open already is not affected.
func (c *Cache) Hold(kind schema.GroupKind, ready <-chan struct{}) {
	if c.usable() != nil {
		return
	}
	c.holds.mu.Lock()
	defer c.holds.mu.Unlock()
	if c.holds.ready == nil {
		c.holds.ready = map[schema.GroupKind][]<-chan struct{}{}
	}
	c.holds.ready[kind] = append(c.holds.ready[kind], ready)
}

// Holds reports whether Hold was called for a kind, even if the wait is over.
func (c *Cache) Holds(kind schema.GroupKind) bool {
	return c.usable() == nil && len(c.holds.of(kind)) > 0
}

func (h *holds) of(kind schema.GroupKind) []<-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready[kind]
}

// wait blocks until the sources of a kind may be opened, or ctx is done.
func (h *holds) wait(ctx context.Context, kind schema.GroupKind) {
	for _, ready := range h.of(kind) {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
	}
}
