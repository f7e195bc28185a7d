package share

// Queue holds the names of things that wait to be done. Namespaces take turns; of one namespace the oldest is
// first. The zero value is ready for use.
type Queue struct {
	queue rota // by namespace, of names
	size  int
}

// Push adds a name of a namespace.
func (q *Queue) Push(namespace, name string) {
	q.queue.add(namespace, &waiter{key: name})
	q.size++
}

// Len is how many names wait.
func (q *Queue) Len() int { return q.size }

// Pop takes out the next one; there has to be one.
func (q *Queue) Pop() string {
	q.size--
	return q.queue.next(anybody).key.(string)
}

// DropFor makes room for one of a namespace: it takes out the newest of the namespace that has the most. It returns ""
// if that is the namespace itself.
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
