package reconcile

import (
	"container/heap"
	"slices"
	"time"
)

// queue has an item for each key that waits, is running, or has relevant history: a failure, recent starts, or
// requeues. It has no lock, clock or goroutine of its own.
//
// A key is in one state at a time:
//
//	idle     waits for an event; has an item only if it has history
//	ready    waits for a worker, in the line of its namespace
//	waiting  for a time: back-off, After, rate limit
//	running  a worker has it; events meanwhile lead to one more reconciliation
type queue struct {
	items   map[Key]*item
	lines   [priorities]lines
	ready   int
	running int
	picks   [priorities]int // picks of each priority since the last one of a lower priority
	times   timeHeap
}

// lowShare is the number of consecutive picks of one priority after which an item of a lower one is picked.
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

// makeReady puts an item that is not running into its line. The priority of a ready item can only rise.
func (q *queue) makeReady(it *item, p priority) {
	if it.state == ready && it.prio <= p {
		return
	}
	q.makeIdle(it)
	it.state, it.prio = ready, p
	q.lines[p].push(it)
	q.ready++
}

// wait makes an item that is not running wait until a time. A ready item leaves its line.
func (q *queue) wait(it *item, until time.Time, why ReasonType) {
	q.makeIdle(it)
	it.state, it.due, it.dueFor = waiting, until, why
	heap.Push(&q.times, it)
}

// makeIdle makes an item idle.
func (q *queue) makeIdle(it *item) {
	switch it.state {
	case ready:
		q.lines[it.prio].live--
		q.ready--
	case waiting:
		heap.Remove(&q.times, it.heapAt)
	}
	it.state = idle
}

// forget removes an item that is not running, with its history.
func (q *queue) forget(it *item) {
	q.makeIdle(it)
	delete(q.items, it.key)
}

// pick returns the next ready item, which is then running; nil if there is none.
func (q *queue) pick() *item {
	p := q.nextPriority()
	it := q.lines[p].pop(p)
	if it == nil {
		return nil
	}
	q.ready--
	q.running++
	it.state = running
	return it
}

// nextPriority returns the priority of the next pick, and counts it.
func (q *queue) nextPriority() priority {
	lower := 0
	for p := range priorities {
		lower += q.lines[p].live
	}
	for p := range low {
		lower -= q.lines[p].live
		switch {
		case q.lines[p].live == 0:
			q.picks[p] = 0
		case lower > 0 && q.picks[p] >= lowShare:
			q.picks[p] = 0
		default:
			q.picks[p]++
			return p
		}
	}
	return low
}

// maxScanned bounds the entries of a line that ahead scans, since the caller holds a lock.
const maxScanned = 10_000

// ahead returns how many ready items are picked before a ready one, and how many of them are in its namespace. It is
// an estimate: it scans the line of that namespace, and uses the lengths of the others. If own is maxScanned, there are
// more.
func (q *queue) ahead(it *item) (all, own int) {
	l := &q.lines[it.prio]
	mine := l.byNS[it.key.Namespace]
	if mine == nil {
		return 0, 0
	}
	for i, o := range mine.items {
		if o == it || i == maxScanned {
			break
		}
		if o.state == ready && o.prio == it.prio {
			own++
		}
	}
	all = own
	turn := 1 // namespaces ahead of this one in turns have one more pick
	for _, other := range l.turns {
		if other == mine {
			turn = 0
			continue
		}
		all += min(len(other.items), own+turn)
	}
	for p := range it.prio {
		all += min(q.lines[p].live, lowShare*(all+1))
	}
	return all, own
}

// expired returns an item that is due and makes it idle; nil if there is none.
func (q *queue) expired(now time.Time) *item {
	if len(q.times) == 0 || q.times[0].due.After(now) {
		return nil
	}
	it := heap.Pop(&q.times).(*item)
	it.state = idle
	return it
}

// lines hold the ready items of one priority, in a line for each namespace. The lines take turns.
type lines struct {
	live    int // items, without stale entries
	entries int // entries, with stale ones
	byNS    map[string]*line
	turns   []*line // the lines that are not empty, the next one first
}

// idleItems bounds by how many stale entries may outnumber the live ones before removeStale runs.
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
	if l.entries++; l.entries > 2*l.live+idleItems {
		l.removeStale(it.prio)
	}
}

// removeStale removes stale entries. An item that became ready again keeps its first place, as in pop.
func (l *lines) removeStale(p priority) {
	l.entries = 0
	seen := make(map[*item]bool, l.live)
	l.turns = slices.DeleteFunc(l.turns, func(own *line) bool {
		own.items = slices.DeleteFunc(own.items, func(it *item) bool {
			left := it.state != ready || it.prio != p || seen[it]
			seen[it] = true
			return left
		})
		l.entries += len(own.items)
		if len(own.items) == 0 {
			delete(l.byNS, own.ns)
		}
		return len(own.items) == 0
	})
}

// pop removes and returns the first item of the next line. It skips stale entries.
func (l *lines) pop(p priority) *item {
	for len(l.turns) > 0 {
		own := l.turns[0]
		l.turns = l.turns[1:]
		var found *item
		for found == nil && len(own.items) > 0 {
			it := own.items[0]
			own.items[0] = nil
			own.items = own.items[1:]
			l.entries--
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

// timeHeap has the waiting items, the earliest due time first.
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
