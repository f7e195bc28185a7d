package flow

import "iter"

// group has the ready fibers of one group. Groups take turns, and so do the parts of a group.
type group struct {
	name       string
	first      part             // the first subgroup; most groups have no other
	others     map[string]*part // nil if there are none
	head, tail *part            // queue of the parts with a ready fiber
	next       *group           // in the queue of groups
	running    int32
	inRing     bool
}

// part is the queue of the ready fibers of one subgroup.
type part struct {
	group      *group
	name       string
	head, tail *fiber
	next       *part // in the queue of its group
	refs       int   // number of live fibers
}

// readyQueue has the fibers that wait for a worker. Each part of a group has a queue, and groups take turns. A group
// with ten thousand ready fibers or parts therefore delays another group by a single turn. Its entries in a fiber are
// part and qnext. The owner holds core.mu during each call.
type readyQueue struct {
	groups     map[string]*group
	head, tail *group
	perGroup   int // maximum number of running fibers of one group, 0 for no limit
}

// join returns the part of a group and counts one more fiber in it.
func (r *readyQueue) join(name, sub string) *part {
	g := r.groups[name]
	if g == nil {
		g = &group{name: name}
		g.first = part{group: g, name: sub}
		if r.groups == nil {
			r.groups = map[string]*group{}
		}
		r.groups[name] = g
	}
	p := g.part(sub)
	p.refs++
	return p
}

// share counts one more fiber in p, and returns p.
func (r *readyQueue) share(p *part) *part {
	p.refs++
	return p
}

// part returns the part with the name sub, and makes it if there is none.
func (g *group) part(sub string) *part {
	if g.first.name == sub {
		return &g.first
	}
	p := g.others[sub]
	if p == nil {
		if g.others == nil {
			g.others = map[string]*part{}
		}
		p = &part{group: g, name: sub}
		g.others[sub] = p
	}
	return p
}

// leave counts one fiber less in p.
func (r *readyQueue) leave(p *part) {
	g := p.group
	if p.refs--; p.refs == 0 && p != &g.first {
		delete(g.others, p.name)
	}
	if g.first.refs == 0 && len(g.others) == 0 {
		delete(r.groups, g.name)
	}
}

// push appends f to the queue of its part.
func (r *readyQueue) push(f *fiber) {
	p := f.part
	if p.tail == nil {
		p.head = f
		p.group.queue(p)
	} else {
		p.tail.qnext = f
	}
	p.tail = f
	r.turn(p.group)
}

// queue appends p to the queue of parts.
func (g *group) queue(p *part) {
	if g.tail == nil {
		g.head = p
	} else {
		g.tail.next = p
	}
	g.tail = p
}

// pop removes the next fiber of the next part.
func (g *group) pop() *fiber {
	p := g.head
	if g.head = p.next; g.head == nil {
		g.tail = nil
	}
	p.next = nil
	f := p.head
	if p.head = f.qnext; p.head == nil {
		p.tail = nil
	} else {
		g.queue(p)
	}
	f.qnext = nil
	return f
}

// turn queues g if it has a ready fiber, may use one more worker, and is not queued.
func (r *readyQueue) turn(g *group) {
	if g.inRing || g.head == nil || r.full(g) {
		return
	}
	g.inRing, g.next = true, nil
	if r.tail == nil {
		r.head = g
	} else {
		r.tail.next = g
	}
	r.tail = g
}

// pop removes the next fiber of the next group, and counts it as running. It returns nil if no fiber may run.
func (r *readyQueue) pop() *fiber {
	g := r.head
	if g == nil {
		return nil
	}
	if r.head = g.next; r.head == nil {
		r.tail = nil
	}
	g.next, g.inRing = nil, false
	f := g.pop()
	g.running++
	r.turn(g)
	return f
}

// release counts one running fiber of g less.
func (r *readyQueue) release(g *group) {
	g.running--
	r.turn(g)
}

// full reports whether the group may use no more workers.
func (r *readyQueue) full(g *group) bool { return r.perGroup > 0 && int(g.running) >= r.perGroup }

// waiting yields the ready fibers of g.
func (g *group) waiting() iter.Seq[*fiber] {
	return func(yield func(*fiber) bool) {
		for p := g.head; p != nil; p = p.next {
			for f := p.head; f != nil; f = f.qnext {
				if !yield(f) {
					return
				}
			}
		}
	}
}
