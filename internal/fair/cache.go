package fair

// Cache is a cache with a bounded number of entries. A full Cache evicts the oldest entry of the largest group, so that
// one group cannot evict the entries of others. It is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	most    int
	entries map[K]*Item[string, entry[K, V]]
	groups  Queue[string, entry[K, V]]
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// NewCache returns a Cache for at most most entries.
func NewCache[K comparable, V any](most int) *Cache[K, V] {
	return &Cache[K, V]{most: most, entries: make(map[K]*Item[string, entry[K, V]])}
}

// Get returns the value of a key.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	e, ok := c.entries[key]
	if ok {
		value = e.Value.value
	}
	return value, ok
}

// Put sets the value of a key, which then is the newest entry of the group.
func (c *Cache[K, V]) Put(key K, group string, value V) {
	c.Drop(key)
	if len(c.entries) >= c.most {
		c.Drop(c.groups.Largest().First().Value.key)
	}
	c.entries[key] = c.groups.Push(group, entry[K, V]{key, value})
}

// Drop removes a key.
func (c *Cache[K, V]) Drop(key K) {
	c.entries[key].Remove()
	delete(c.entries, key)
}

// Len returns the number of entries.
func (c *Cache[K, V]) Len() int { return len(c.entries) }
