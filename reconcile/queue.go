package reconcile

import (
	"container/heap"
	"slices"
	"time"
)

// queue has an item for each key that waits, is worked on, or has a history that counts: a failure, recent starts, or
// requests for another reconciliation. It has no lock, no clock and no goroutine; those are its owner's.
//
// A key is in one state at a time:
//
//	idle     waits for a change only; known for its history, or not at all
//	ready    waits for a worker, in the line of its namespace
//	waiting  for a time: back-off, After, rate limit
//	running  a worker has it; what happens meanwhile is one more reconciliation, afterwards
type queue struct {
	items   map[Key]*item
	lines   [2]lines // by priority
	ready   int
	running int
	picks   int // since a low one was picked
	times   timeHeap
}

// lowShare is after how many high keys a low one is picked, although more high ones are ready.
const lowShare = 8

func newQueue() *queue {
	return &queue{items: map[Key]*item{}}
}

func (q *queue) item(k Key) *item {
	it := q.items[k]
	if it == nil {
		it = &item{key: k, heapAt: -1, prio: low}
		q.items[k] = it
	}
	return it
}

// makeReady puts an item that is not running into the line; one that is in it may only rise.
func (q *queue) makeReady(it *item, p priority) {
	if it.state == ready && it.prio <= p {
		return
	}
	q.rest(it)
	it.state, it.prio = ready, p
	q.lines[p].push(it)
	q.ready++
}

// wait has an item that is not running wait for a time. If it is in a line, it leaves that.
func (q *queue) wait(it *item, until time.Time, why ReasonType) {
	q.rest(it)
	it.state, it.due, it.dueFor = waiting, until, why
	heap.Push(&q.times, it)
}

// rest has an item wait for nothing but a change.
func (q *queue) rest(it *item) {
	switch it.state {
	case ready:
		q.lines[it.prio].live--
		q.ready--
	case waiting:
		heap.Remove(&q.times, it.heapAt)
	}
	it.state = idle
}

// forget drops all that is known of an item that is not running.
func (q *queue) forget(it *item) {
	q.rest(it)
	delete(q.items, it.key)
}

// pick takes the next item out of the lines; nil if there is none. It is running then.
func (q *queue) pick() *item {
	p := high
	if q.lines[high].live == 0 || q.lines[low].live > 0 && q.picks >= lowShare {
		p = low
	}
	if p == low {
		q.picks = 0
	} else {
		q.picks++
	}
	it := q.lines[p].pop(p)
	if it == nil {
		return nil
	}
	q.ready--
	q.running++
	it.state = running
	return it
}

// expired takes an item whose time has come; nil if there is none.
func (q *queue) expired(now time.Time) *item {
	if len(q.times) == 0 || q.times[0].due.After(now) {
		return nil
	}
	it := heap.Pop(&q.times).(*item)
	it.state = idle
	return it
}

// lines are the ready items of one priority: a line for each namespace, which take turns.
type lines struct {
	live  int // items, without those that have left
	held  int // with them
	byNS  map[string]*line
	turns []*line // those that are not empty, the next first
}

// idleItems is how many items that have left the lines may hold besides as many as are live.
const idleItems = 16

type line struct {
	ns    string
	items []*item
}

func (l *lines) push(it *item) {
	l.live++
	if l.byNS == nil {
		l.byNS = map[string]*line{}
	}
	own := l.byNS[it.key.Namespace]
	if own == nil {
		own = &line{ns: it.key.Namespace}
		l.byNS[it.key.Namespace] = own
		l.turns = append(l.turns, own)
	}
	own.items = append(own.items, it)
	if l.held++; l.held > 2*l.live+idleItems {
		l.tidy(it.prio)
	}
}

// tidy drops the items that have left. One that has come again keeps its first place, as it does for pop.
func (l *lines) tidy(p priority) {
	l.held = 0
	seen := make(map[*item]bool, l.live)
	l.turns = slices.DeleteFunc(l.turns, func(own *line) bool {
		own.items = slices.DeleteFunc(own.items, func(it *item) bool {
			left := it.state != ready || it.prio != p || seen[it]
			seen[it] = true
			return left
		})
		l.held += len(own.items)
		if len(own.items) == 0 {
			delete(l.byNS, own.ns)
		}
		return len(own.items) == 0
	})
}

// pop takes the first item of the next line. Items that have left are passed over.
func (l *lines) pop(p priority) *item {
	for len(l.turns) > 0 {
		own := l.turns[0]
		l.turns = l.turns[1:]
		var found *item
		for found == nil && len(own.items) > 0 {
			it := own.items[0]
			own.items[0] = nil
			own.items = own.items[1:]
			l.held--
			if it.state == ready && it.prio == p {
				found = it
			}
		}
		if len(own.items) > 0 {
			l.turns = append(l.turns, own)
		} else {
			delete(l.byNS, own.ns)
		}
		if found != nil {
			l.live--
			return found
		}
	}
	return nil
}

// timeHeap is the waiting items, the first due first.
type timeHeap []*item

func (h timeHeap) Len() int           { return len(h) }
func (h timeHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h timeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

// Push implements heap.Interface.
func (h *timeHeap) Push(x any) {
	it := x.(*item)
	it.heapAt = len(*h)
	*h = append(*h, it)
}

// Pop implements heap.Interface.
func (h *timeHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	it.heapAt = -1
	return it
}
