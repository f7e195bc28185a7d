package flow

import (
	"context"
	"slices"
	"sync"
)

// Memory implements Positions in memory. It is for tests, and for fibers that outlive their engine but not the process.
// The zero value is ready for use. A Memory is safe for concurrent use.
type Memory struct {
	mu   sync.Mutex
	kept map[string]Position
}

// Load implements Positions.
func (m *Memory) Load(_ context.Context, key string) (Position, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.kept[key]
	p.Checkpoint = slices.Clone(p.Checkpoint)
	return p, ok, nil
}

// Save implements Positions.
func (m *Memory) Save(_ context.Context, key string, p Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept == nil {
		m.kept = map[string]Position{}
	}
	p.Checkpoint = slices.Clone(p.Checkpoint)
	m.kept[key] = p
	return nil
}

// Clear implements Positions.
func (m *Memory) Clear(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, key)
	return nil
}
