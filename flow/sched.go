package flow

import "github.com/fairlead-io/fairlead/internal/goroutine"

// group are the ready fibers that share one turn, which its parts have one after the other.
type group struct {
	name       string
	parts      map[string]*part
	head, tail *part  // ring of those with a ready fiber
	next       *group // in the ring of groups with a turn
	running    int
	inRing     bool
}

// part is the queue of the ready fibers of one subgroup.
type part struct {
	group      *group
	name       string
	head, tail *fiber
	next       *part // in the ring of its group
	refs       int   // live fibers
}

// ready holds the fibers that wait for a worker: a queue for each part of a group, and the groups in a ring, so that a group with ten
// thousand ready fibers, or as many parts, delays another one by a single turn. Guarded by Engine.mu.
type ready struct {
	groups     map[string]*group
	head, tail *group
	perGroup   int
}

// join returns a part of a group, for one more fiber.
func (r *ready) join(name, sub string) *part {
	g := r.groups[name]
	if g == nil {
		g = &group{name: name, parts: map[string]*part{}}
		if r.groups == nil {
			r.groups = map[string]*group{}
		}
		r.groups[name] = g
	}
	p := g.parts[sub]
	if p == nil {
		p = &part{group: g, name: sub}
		g.parts[sub] = p
	}
	p.refs++
	return p
}

func (r *ready) leave(p *part) {
	if p.refs--; p.refs > 0 {
		return
	}
	if delete(p.group.parts, p.name); len(p.group.parts) == 0 {
		delete(r.groups, p.group.name)
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

// queue puts p at the end of the ring.
func (g *group) queue(p *part) {
	if g.tail == nil {
		g.head = p
	} else {
		g.tail.next = p
	}
	g.tail = p
}

// pop takes the next fiber of the next part.
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

// turn puts g into the ring if it is due for a turn and not there.
func (r *ready) turn(g *group) {
	if g.inRing || g.head == nil || (r.perGroup > 0 && g.running >= r.perGroup) {
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

// pop takes the next fiber of the next group.
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

// worker is a goroutine that runs fibers.
type worker struct {
	index     int32
	goroutine goroutine.ID // as stack traces name it
}

// makeReady queues f for a worker. Under mu; f is new, parked or yielding.
func (e *Engine) makeReady(f *fiber) {
	f.state = Ready
	e.timers.remove(f)
	e.ready.push(f)
	e.queued.Add(1)
	if e.nidle > 0 {
		e.nidle-- // on behalf of the one that is woken, so that the next call wakes another
		e.idle.Signal()
		return
	}
	if len(e.workers) < e.opt.Workers {
		w := &worker{index: int32(len(e.workers))}
		e.workers = append(e.workers, w)
		e.wg.Go(func() { e.work(w) })
	}
}

// pokeLocked notes why f is to be looked at, and queues it if it is parked. Under mu.
func (e *Engine) pokeLocked(f *fiber, p pokes) {
	f.poke |= p
	if f.state == Parked {
		e.makeReady(f)
	}
}

// work runs fibers until the engine halts. Should user code end the goroutine (runtime.Goexit, as a test's FailNow does), the
// fiber fails and another goroutine takes the worker's place.
func (e *Engine) work(w *worker) {
	w.goroutine = goroutine.Current()
	var f *fiber
	var g *group
	left := false
	defer func() {
		if left {
			return
		}
		e.mu.Lock()
		e.release(g)
		e.mu.Unlock()
		e.wg.Go(func() { e.work(w) })
	}()
	defer func() {
		if !left {
			r := run{e: e, f: f, now: e.now()}
			r.end(Failed, f.inPath(ErrGoexit))
		}
	}()
	e.mu.Lock()
	for !e.halted {
		if f = e.ready.pop(); f == nil {
			e.nidle++
			e.idle.Wait()
			continue
		}
		e.queued.Add(-1)
		g = f.part.group
		why, poke := f.why, f.poke
		f.state, f.why, f.poke, f.worker = Running, whyNone, 0, w.index+1
		e.mu.Unlock()
		e.slice(f, why, poke)
		e.mu.Lock()
		e.release(g)
	}
	e.mu.Unlock()
	left = true
}

func (e *Engine) release(g *group) {
	g.running--
	e.ready.turn(g)
}
