package fair

import "iter"

// Queue holds items by key. Keys take turns; within a key the order is first in, first out. Lines, Largest, MakeRoom
// and a restricted Next visit the keys. All other operations take constant time. The zero value is ready for use. A
// Queue must not be copied after its first use.
type Queue[K comparable, T any] struct {
	lines       map[K]*Line[K, T]
	first, last *Line[K, T] // in order of their turns
	spare       *Line[K, T] // an empty line for the next key, or nil
	len, weight int
}

// Line holds the items of one key. A nil Line is empty. A Line is invalid after its last item was removed.
type Line[K comparable, T any] struct {
	Key K

	queue       *Queue[K, T]
	first, last *Item[K, T]
	prev, next  *Line[K, T]
	len, weight int
}

// Item is an element of at most one Queue. The zero value is in none.
type Item[K comparable, T any] struct {
	Value  T
	Weight int // constant while the item is in a queue

	line       *Line[K, T]
	prev, next *Item[K, T]
}

// Push appends a new item of weight 1 to the line of a key.
func (q *Queue[K, T]) Push(key K, value T) *Item[K, T] {
	it := &Item[K, T]{Value: value, Weight: 1}
	q.Add(key, it)
	return it
}

// Add appends an item, which must be in no queue, to the line of a key.
func (q *Queue[K, T]) Add(key K, it *Item[K, T]) {
	l := q.join(key, it)
	l.insert(it, l.last)
}

// AddFirst is Add, but puts the item at the head of the line.
func (q *Queue[K, T]) AddFirst(key K, it *Item[K, T]) { q.join(key, it).insert(it, nil) }

// join counts an item of a key and returns the line of the key.
func (q *Queue[K, T]) join(key K, it *Item[K, T]) *Line[K, T] {
	l := q.lines[key]
	if l == nil {
		if l = q.spare; l == nil {
			l = &Line[K, T]{queue: q}
		}
		if q.lines == nil {
			q.lines = make(map[K]*Line[K, T])
		}
		q.spare, l.Key, q.lines[key] = nil, key, l
		q.enqueue(l)
	}
	q.len++
	q.weight += it.Weight
	l.len++
	l.weight += it.Weight
	return l
}

// Remove removes the item from its queue, if it is in one. A nil Item is in none.
func (it *Item[K, T]) Remove() {
	if it == nil || it.line == nil {
		return
	}
	l := it.line
	q := l.queue
	l.unlink(it)
	it.line = nil
	q.len--
	q.weight -= it.Weight
	l.len--
	if l.weight -= it.Weight; l.len == 0 {
		q.dequeue(l)
		delete(q.lines, l.Key)
		q.spare = l
	}
}

// MoveToEnd moves an item, which must be in a queue, to the end of its line.
func (it *Item[K, T]) MoveToEnd() {
	l := it.line
	l.unlink(it)
	l.insert(it, l.last)
}

// Queued reports whether the item is in a queue.
func (it *Item[K, T]) Queued() bool { return it.line != nil }

// Key returns the key of an item, which must be in a queue.
func (it *Item[K, T]) Key() K { return it.line.Key }

// Next returns the item behind this one in the line, or nil.
func (it *Item[K, T]) Next() *Item[K, T] { return it.next }

// Next removes and returns the first item of the first key for which may returns true, or nil. The key takes its next
// turn after all others. Skipped keys keep their turns. A nil may permits every key.
func (q *Queue[K, T]) Next(may func(K) bool) *Item[K, T] {
	for l := q.first; l != nil; l = l.next {
		if may != nil && !may(l.Key) {
			continue
		}
		it := l.first
		if l.len > 1 {
			q.dequeue(l)
			q.enqueue(l)
		}
		it.Remove()
		return it
	}
	return nil
}

// First returns the item that Next(nil) would remove, or nil.
func (q *Queue[K, T]) First() *Item[K, T] { return q.first.First() }

// Len returns the number of items.
func (q *Queue[K, T]) Len() int { return q.len }

// Weight returns the weight of all items.
func (q *Queue[K, T]) Weight() int { return q.weight }

// Line returns the line of a key, or nil if it has no items.
func (q *Queue[K, T]) Line(key K) *Line[K, T] { return q.lines[key] }

// Lines returns the lines in order of their turns. The queue must not change meanwhile.
func (q *Queue[K, T]) Lines() iter.Seq[*Line[K, T]] {
	return func(yield func(*Line[K, T]) bool) {
		for l := q.first; l != nil && yield(l); l = l.next {
		}
	}
}

// Largest returns the line of the largest weight, or nil if the queue is empty.
func (q *Queue[K, T]) Largest() *Line[K, T] {
	largest := q.first
	for l := q.first; l != nil; l = l.next {
		if l.weight > largest.weight {
			largest = l
		}
	}
	return largest
}

// MakeRoom makes room for an item of a key: it removes and returns the last item of the largest line. It returns nil if
// no line is larger than that of the key.
func (q *Queue[K, T]) MakeRoom(key K) *Item[K, T] {
	largest := q.Largest()
	if largest.Weight() <= q.Line(key).Weight() {
		return nil
	}
	it := largest.last
	it.Remove()
	return it
}

// First returns the first item, or nil.
func (l *Line[K, T]) First() *Item[K, T] {
	if l == nil {
		return nil
	}
	return l.first
}

// Len returns the number of items.
func (l *Line[K, T]) Len() int {
	if l == nil {
		return 0
	}
	return l.len
}

// Weight returns the weight of the items.
func (l *Line[K, T]) Weight() int {
	if l == nil {
		return 0
	}
	return l.weight
}

// insert inserts an item after another one, or at the head of the line if that is nil.
func (l *Line[K, T]) insert(it, after *Item[K, T]) {
	next := &l.first
	if after != nil {
		next = &after.next
	}
	it.line, it.prev, it.next = l, after, *next
	*next = it
	if it.next == nil {
		l.last = it
	} else {
		it.next.prev = it
	}
}

func (l *Line[K, T]) unlink(it *Item[K, T]) {
	if it.prev == nil {
		l.first = it.next
	} else {
		it.prev.next = it.next
	}
	if it.next == nil {
		l.last = it.prev
	} else {
		it.next.prev = it.prev
	}
	it.prev, it.next = nil, nil
}

// enqueue appends a line to the turns.
func (q *Queue[K, T]) enqueue(l *Line[K, T]) {
	if l.prev = q.last; l.prev == nil {
		q.first = l
	} else {
		l.prev.next = l
	}
	q.last = l
}

func (q *Queue[K, T]) dequeue(l *Line[K, T]) {
	if l.prev == nil {
		q.first = l.next
	} else {
		l.prev.next = l.next
	}
	if l.next == nil {
		q.last = l.prev
	} else {
		l.next.prev = l.prev
	}
	l.prev, l.next = nil, nil
}
