package flow

import "iter"

// group has the ready fibers of one group. Groups take turns, and so do the subgroups of a group.
type group struct {
	name       string
	first      subgroup             // the first subgroup; most groups have no other
	others     map[string]*subgroup // nil if there are none
	head, tail *subgroup            // queue of the subgroups with a ready fiber
	next       *group               // in the queue of groups
	running    int32
	inRing     bool
}

// subgroup is the queue of the ready fibers of one subgroup.
type subgroup struct {
	group      *group
	name       string
	head, tail *fiber
	next       *subgroup // in the queue of its group
	refs       int       // number of live fibers
}

// readyQueue has the fibers that wait for a worker. Each subgroup of a group has a queue, and groups take turns. A
// group with ten thousand ready fibers or subgroups therefore delays another group by a single turn. Its entries in a
// fiber are subgroup and qnext. The owner holds core.mu during each call.
type readyQueue struct {
	groups     map[string]*group
	head, tail *group
	perGroup   int // maximum number of running fibers of one group, 0 for no limit
}

// join returns the subgroup of a group and counts one more fiber in it.
func (r *readyQueue) join(name, sub string) *subgroup {
	g := r.groups[name]
	if g == nil {
		g = &group{name: name}
		g.first = subgroup{group: g, name: sub}
		if r.groups == nil {
			r.groups = map[string]*group{}
		}
		r.groups[name] = g
	}
	p := g.subgroup(sub)
	p.refs++
	return p
}

// share counts one more fiber in p, and returns p.
func (r *readyQueue) share(p *subgroup) *subgroup {
	p.refs++
	return p
}

// subgroup returns the subgroup with the name, and makes it if there is none.
func (g *group) subgroup(name string) *subgroup {
	if g.first.name == name {
		return &g.first
	}
	p := g.others[name]
	if p == nil {
		if g.others == nil {
			g.others = map[string]*subgroup{}
		}
		p = &subgroup{group: g, name: name}
		g.others[name] = p
	}
	return p
}

// leave counts one fiber less in p.
func (r *readyQueue) leave(p *subgroup) {
	g := p.group
	if p.refs--; p.refs == 0 && p != &g.first {
		delete(g.others, p.name)
	}
	if g.first.refs == 0 && len(g.others) == 0 {
		delete(r.groups, g.name)
	}
}

// push appends f to the queue of its subgroup.
func (r *readyQueue) push(f *fiber) {
	p := f.subgroup
	if p.tail == nil {
		p.head = f
		p.group.queue(p)
	} else {
		p.tail.qnext = f
	}
	p.tail = f
	r.turn(p.group)
}

// queue appends p to the queue of subgroups.
func (g *group) queue(p *subgroup) {
	if g.tail == nil {
		g.head = p
	} else {
		g.tail.next = p
	}
	g.tail = p
}

// pop removes the next fiber of the next subgroup.
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

// waiting yields the ready fibers of the groups for which in returns true.
func (r *readyQueue) waiting(in func(*group) bool) iter.Seq[*fiber] {
	return func(yield func(*fiber) bool) {
		for _, g := range r.groups {
			if !in(g) {
				continue
			}
			for p := g.head; p != nil; p = p.next {
				for f := p.head; f != nil; f = f.qnext {
					if !yield(f) {
						return
					}
				}
			}
		}
	}
}

// waits reports whether g has a ready fiber and may use no more workers.
func (r *readyQueue) waits(g *group) bool { return g.head != nil && r.full(g) }
