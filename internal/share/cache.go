package share

import "container/list"

// Cache is a cache with a bounded number of entries. A full Cache evicts the oldest entry of the largest group, so
// that one group cannot evict the entries of others. It is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	most    int
	entries map[K]*list.Element
	groups  map[string]*list.List // each with the oldest first
}

type remembered[K comparable, V any] struct {
	key   K
	group string
	value V
}

// NewCache returns a Cache of at most most entries.
func NewCache[K comparable, V any](most int) *Cache[K, V] {
	return &Cache[K, V]{most: most, entries: make(map[K]*list.Element), groups: make(map[string]*list.List)}
}

// Get returns the value of a key.
func (m *Cache[K, V]) Get(key K) (value V, ok bool) {
	e, ok := m.entries[key]
	if ok {
		value = e.Value.(remembered[K, V]).value
	}
	return value, ok
}

// Put sets the value of a key, which then is the newest of its group.
func (m *Cache[K, V]) Put(key K, group string, value V) {
	m.Drop(key)
	if len(m.entries) >= m.most {
		var largest *list.List
		for _, of := range m.groups {
			if largest == nil || of.Len() > largest.Len() {
				largest = of
			}
		}
		m.Drop(largest.Front().Value.(remembered[K, V]).key)
	}
	of := m.groups[group]
	if of == nil {
		of = list.New()
		m.groups[group] = of
	}
	m.entries[key] = of.PushBack(remembered[K, V]{key, group, value})
}

// Drop removes a key.
func (m *Cache[K, V]) Drop(key K) {
	e, ok := m.entries[key]
	if !ok {
		return
	}
	delete(m.entries, key)
	group := e.Value.(remembered[K, V]).group
	if of := m.groups[group]; of.Len() > 1 {
		of.Remove(e)
	} else {
		delete(m.groups, group)
	}
}

// Len returns the number of entries.
func (m *Cache[K, V]) Len() int { return len(m.entries) }
