package httpapi

import "github.com/fairlead-io/fairlead/internal/fair"

// memory is a cache with a bounded number of entries. A full memory evicts the oldest entry of the largest group, so
// that one group cannot evict the entries of others. It is not safe for concurrent use.
type memory[K comparable, V any] struct {
	most    int
	entries map[K]*fair.Item[string, remembered[K, V]]
	groups  fair.Queue[string, remembered[K, V]] // each with the oldest first
}

type remembered[K comparable, V any] struct {
	key   K
	value V
}

func newMemory[K comparable, V any](most int) *memory[K, V] {
	return &memory[K, V]{most: most, entries: make(map[K]*fair.Item[string, remembered[K, V]])}
}

func (m *memory[K, V]) get(key K) (value V, ok bool) {
	e, ok := m.entries[key]
	if ok {
		value = e.Value.value
	}
	return value, ok
}

func (m *memory[K, V]) put(key K, group string, value V) {
	m.drop(key)
	if len(m.entries) >= m.most {
		m.drop(m.groups.Largest().First().Value.key)
	}
	m.entries[key] = m.groups.Push(group, remembered[K, V]{key, value})
}

func (m *memory[K, V]) drop(key K) {
	m.entries[key].Remove()
	delete(m.entries, key)
}
