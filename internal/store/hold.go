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

// add delays the sources of a kind until ready is closed.
func (h *holds) add(kind schema.GroupKind, ready <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready == nil {
		h.ready = map[schema.GroupKind][]<-chan struct{}{}
	}
	h.ready[kind] = append(h.ready[kind], ready)
}

// of returns the channels of a kind.
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
