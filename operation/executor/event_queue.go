package executor

import "container/list"

// eventQueue holds the names of Events that wait to be written. Namespaces take turns; of one namespace the oldest is first. The zero value is
// ready for use.
type eventQueue struct {
	spaces map[string]*list.Element // of turns
	turns  list.List                // of *eventSpace, the next one first
	size   int
}

type eventSpace struct {
	namespace string
	names     []string
}

func (q *eventQueue) push(namespace, name string) {
	if q.spaces == nil {
		q.spaces = make(map[string]*list.Element)
	}
	at := q.spaces[namespace]
	if at == nil {
		at = q.turns.PushBack(&eventSpace{namespace: namespace})
		q.spaces[namespace] = at
	}
	s := at.Value.(*eventSpace)
	s.names = append(s.names, name)
	q.size++
}

// pop takes out the next one; there has to be one.
func (q *eventQueue) pop() string {
	at := q.turns.Front()
	s := at.Value.(*eventSpace)
	name := s.names[0]
	s.names = s.names[1:]
	q.turns.MoveToBack(at)
	q.shrink(at)
	return name
}

// dropFor makes room for one of a namespace: it takes out the newest of the namespace that has the most. It returns "" if that is the
// namespace itself.
func (q *eventQueue) dropFor(namespace string) string {
	has := func(at *list.Element) int { return len(at.Value.(*eventSpace).names) }
	most := q.spaces[namespace]
	for at := q.turns.Front(); at != nil; at = at.Next() {
		if most == nil || has(at) > has(most) {
			most = at
		}
	}
	if most == q.spaces[namespace] {
		return ""
	}
	s := most.Value.(*eventSpace)
	name := s.names[len(s.names)-1]
	s.names = s.names[:len(s.names)-1]
	q.shrink(most)
	return name
}

// shrink counts one less, and forgets a namespace that has none.
func (q *eventQueue) shrink(at *list.Element) {
	q.size--
	if s := at.Value.(*eventSpace); len(s.names) == 0 {
		q.turns.Remove(at)
		delete(q.spaces, s.namespace)
	}
}
