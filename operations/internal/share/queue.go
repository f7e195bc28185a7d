package share

// Queue holds names of pending work. Namespaces take turns, and within a namespace the order is first in, first out.
// The zero value is ready for use.
type Queue struct {
	queue rota // by namespace, of names
	size  int
}

// Push adds a name of a namespace.
func (q *Queue) Push(namespace, name string) {
	q.queue.add(namespace, &waiter{key: name})
	q.size++
}

// Len returns the number of names.
func (q *Queue) Len() int { return q.size }

// Pop removes and returns the next name. The queue must not be empty.
func (q *Queue) Pop() string {
	q.size--
	return q.queue.next(anybody).key.(string)
}

// DropFor makes room for a name of a namespace: it removes and returns the newest name of the largest namespace. It
// returns "" if that is the namespace itself.
func (q *Queue) DropFor(namespace string) string {
	own := q.queue.lanes[namespace]
	most := own
	for at := q.queue.turns.Front(); at != nil; at = at.Next() {
		if l := at.Value.(*lane); most == nil || l.queue.Len() > most.queue.Len() {
			most = l
		}
	}
	if most == own {
		return ""
	}
	w := most.queue.Back().Value.(*waiter)
	q.queue.remove(w)
	q.size--
	return w.key.(string)
}
