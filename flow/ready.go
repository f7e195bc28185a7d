package flow

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

// ready has the fibers that wait for a worker. Each part of a group has a queue, and groups take turns. A group with
// ten thousand ready fibers or parts therefore delays another group by a single turn. Guarded by Engine.mu.
type ready struct {
	groups     map[string]*group
	head, tail *group
	perGroup   int
}

// join returns the part of a group and counts one more fiber in it.
func (r *ready) join(name, sub string) *part {
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

func (r *ready) leave(p *part) {
	g := p.group
	if p.refs--; p.refs == 0 && p != &g.first {
		delete(g.others, p.name)
	}
	if g.first.refs == 0 && len(g.others) == 0 {
		delete(r.groups, g.name)
	}
}

func (r *ready) push(f *fiber) {
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
func (r *ready) turn(g *group) {
	if g.inRing || g.head == nil || (r.perGroup > 0 && int(g.running) >= r.perGroup) {
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

// pop removes the next fiber of the next group.
func (r *ready) pop() *fiber {
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
