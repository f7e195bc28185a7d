package fair

// Tally counts the use of a bounded resource by key. A key that may use only as much as is free leaves to the others as
// much as it takes (the dynamic threshold of Choudhury and Hahne, IEEE/ACM ToN 1998). The zero value is ready for use.
type Tally[K comparable] struct {
	all   int
	byKey map[K]int
}

// All returns the use of all keys.
func (t *Tally[K]) All() int { return t.all }

// Of returns the use of a key.
func (t *Tally[K]) Of(key K) int { return t.byKey[key] }

// Add adds to the use of a key. A negative amount ends a use.
func (t *Tally[K]) Add(key K, amount int) {
	if t.byKey == nil {
		t.byKey = make(map[K]int)
	}
	t.all += amount
	if t.byKey[key] += amount; t.byKey[key] == 0 {
		delete(t.byKey, key)
	}
}
