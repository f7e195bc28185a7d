package fair

// Quota counts the use of a bounded resource by key. A key that may use no more than Free leaves to the others as much
// as it takes (the dynamic threshold of Choudhury and Hahne, IEEE/ACM ToN 1998).
type Quota[K comparable] struct {
	Most int // of all keys together

	used  int
	byKey map[K]int
}

// Free returns the amount that no key uses.
func (q *Quota[K]) Free() int { return q.Most - q.used }

// Held returns the amount that a key uses.
func (q *Quota[K]) Held(key K) int { return q.byKey[key] }

// Add adds to the use of a key. A negative amount ends a use.
func (q *Quota[K]) Add(key K, amount int) {
	if q.byKey == nil {
		q.byKey = make(map[K]int)
	}
	q.used += amount
	if q.byKey[key] += amount; q.byKey[key] == 0 {
		delete(q.byKey, key)
	}
}
