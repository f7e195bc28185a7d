package store

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// holds are the kinds whose sources wait for something. The zero value holds nothing.
type holds struct {
	mu    sync.Mutex // a leaf
	ready map[schema.GroupKind][]<-chan struct{}
}

// Hold has the sources of a kind wait, whatever its version: none is opened before ready is closed. The sources of a
// custom resource wait for its conversion, for example. A source that is open already goes on.
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

// Holds says whether Hold was called for a kind, also after the end of the wait.
func (c *Cache) Holds(kind schema.GroupKind) bool {
	return c.usable() == nil && len(c.holds.of(kind)) > 0
}

func (h *holds) of(kind schema.GroupKind) []<-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ready[kind]
}

// wait returns when the sources of a kind may be opened, or at the end of ctx.
func (h *holds) wait(ctx context.Context, kind schema.GroupKind) {
	for _, ready := range h.of(kind) {
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
	}
}
