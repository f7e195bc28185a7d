package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

// runs is the list of running reconciliations, oldest first. The zero value is empty. Controller.mu guards everything
// in this file.
type runs struct{ first, last *reconciliation }

func (l *runs) add(r *reconciliation) {
	if r.prev = l.last; r.prev == nil {
		l.first = r
	} else {
		r.prev.next = r
	}
	l.last = r
}

func (l *runs) remove(r *reconciliation) {
	if r.prev == nil {
		l.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// keptDone is the number of successes that are remembered. The queue has no item for an idle object, so only recent
// successes are known.
const keptDone = 256

// done is a ring of the last successes.
type done struct {
	ring []success
	next int
}

type success struct {
	key Key
	uid types.UID
	at  time.Time
}

func (d *done) note(k Key, uid types.UID, at time.Time) {
	s := success{k, uid, at}
	if len(d.ring) < keptDone {
		d.ring = append(d.ring, s)
		return
	}
	d.ring[d.next] = s
	d.next = (d.next + 1) % keptDone
}

// of returns when an object was last reconciled; zero if that is not remembered.
func (d *done) of(k Key) (at time.Time) {
	for _, s := range d.ring {
		if s.key == k && s.at.After(at) {
			at = s.at
		}
	}
	return at
}

// maxLooked bounds the entries of a line that before scans, since it holds Controller.mu.
const maxLooked = 10_000

// before returns how many ready items are picked before a ready one, and how many of them are in its namespace. It is
// an estimate: it scans the line of that namespace, and uses the lengths of the others. If own is maxLooked, there are
// more.
func (q *queue) before(it *item) (all, own int) {
	l := &q.lines[it.prio]
	mine := l.byNS[it.key.Namespace]
	if mine == nil {
		return 0, 0
	}
	for i, o := range mine.items {
		if o == it || i == maxLooked {
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
	if it.prio == low {
		all += min(q.lines[high].live, lowShare*(all+1))
	}
	return all, own
}

// sight is a snapshot of an object in the queue.
type sight struct {
	state   itemState
	known   bool // the queue has an item
	due     time.Time
	dueFor  ReasonType
	fail    *failure // a copy
	run     *reconciliation
	begun   time.Time
	attempt int

	workers, limit int
	ready          int
	before, own    int
	came           time.Time // since when it is ready
	busy           []busyWorker
	paced          time.Time // when the total rate limit allows the next start
	last           time.Time // time of the last success
}

// busyWorker is the object of a worker, since when, and the goroutine.
type busyWorker struct {
	success
	goroutine goroutine.ID
}

// maxBusy bounds the busy workers in a sight.
const maxBusy = 5

// look returns a snapshot of one object.
func (c *Controller) look(k Key) sight {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := sight{workers: c.q.running, limit: c.set.workers, ready: c.q.ready}
	it := c.q.items[k]
	if it == nil {
		s.last = c.done.of(k)
		return s
	}
	s.known, s.state, s.due, s.dueFor = true, it.state, it.due, it.dueFor
	if it.fail != nil {
		seen := *it.fail
		s.fail = &seen
	}
	switch it.state {
	case running:
		if r := it.current; r != nil {
			s.run, s.begun, s.attempt = r, r.begun, r.attempt
		}
	case ready:
		s.came = it.came
		s.before, s.own = c.q.before(it)
		if free := c.total.free(); free.After(c.now()) {
			s.paced = free
		}
		for r := c.runs.first; r != nil && len(s.busy) < maxBusy; r = r.next {
			s.busy = append(s.busy, busyWorker{success{key: r.key, at: r.begun}, r.goroutine})
		}
	default:
		s.last = c.done.of(k)
	}
	return s
}
