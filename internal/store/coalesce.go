package store

// delta is the change of one key since the state that a subscriber got last, folded from any number of changes.
type delta struct {
	key      Key
	given    *Record // the state that the subscriber has; nil if none
	dead     *Record // last known state of the given incarnation, if it was deleted or has left
	left     bool    // the incarnation has left, and was not deleted
	now      *Record // the latest state; nil if there is none
	steps    int     // changes folded in
	initial  bool
	inferred bool
	relist   bool
}

// fold adds the next change of the key.
func (d *delta) fold(c *change) {
	if d.steps == 0 {
		d.given = c.prior
	}
	d.steps++
	d.relist = d.relist || c.relist
	switch c.typ {
	case Added:
		d.now, d.initial = c.obj, c.initial
	case Modified:
		d.now = c.obj
	case Deleted:
		d.now, d.initial = nil, false
		d.end(c)
	case Left:
		d.now, d.initial = nil, false
		d.end(c)
	}
}

// end records how the incarnation ended that the subscriber has. If it left, came back and was deleted, the deletion
// counts.
func (d *delta) end(c *change) {
	if d.dead != nil && !d.left {
		return
	}
	if d.given != nil && d.given.SameUID(c.obj) || c.prior == nil && d.dead == nil {
		d.dead, d.inferred, d.left = c.obj, c.inferred, c.typ == Left
	}
}

// take returns the next event of the delta, and whether it was the last one; some is false if there is no event. A
// delta yields a deletion of the given state and then an addition, or one modification, or no event for an object that
// came and went. Left is like a deletion: an object that comes back with its slot is new, because another replica may
// have worked on it.
func (d *delta) take(wants func(*Record) bool) (e Event, some, last bool) {
	given, now := d.given, d.now
	if given != nil && !wants(given) {
		given = nil
	}
	if now != nil && !wants(now) {
		now = nil
	}
	gone := given != nil && (d.dead != nil || now == nil || !now.SameUID(given))
	// an object that only the overlay held
	ghost := given == nil && d.given == nil && d.now == nil && d.dead != nil && wants(d.dead)
	switch {
	case gone || ghost:
		e = Event{Type: Deleted, Key: d.key, Object: given, Prior: given, Inferred: d.inferred}
		switch {
		case d.dead != nil && d.left:
			e.Type, e.Object = Left, d.dead
		case d.dead != nil:
			e.Object = d.dead
		case d.now != nil && d.now.SameUID(given): // it does not match any more
			e.Object = d.now
		default:
			e.Inferred = true
		}
		d.given, d.dead, d.left = nil, nil, false
		return e, true, now == nil
	case now == nil:
		return e, false, true
	case given == nil:
		return Event{Type: Added, Key: now.Key(), Object: now, Initial: d.initial}, true, true
	case given == now:
		return e, false, true
	}
	return Event{Type: Modified, Key: now.Key(), Object: now, Prior: given}, true, true
}

// then appends a later delta, across an epoch. States from before the epoch may have higher versions than later ones,
// so a deletion is reported with the given state.
func (d *delta) then(later *delta) {
	ends := d.given != nil && later.dead != nil && later.dead.SameUID(d.given)
	if ends && (d.dead == nil || d.left) {
		d.left = later.left
	}
	if d.given != nil && (d.dead != nil || ends) {
		d.dead, d.inferred = d.given, !d.left
	}
	d.now, d.initial, d.relist = later.now, later.initial, true
	d.steps += later.steps
}

// pending is the folded part of the log for one slow cursor: at most one delta per key, in the order of first change,
// and the notes between them. Changes after an epoch are folded separately, because lower versions may only come after
// it. Only the last of several epochs is kept apart, so pending has at most two deltas per key.
type pending struct {
	byKey  map[Key]*delta // since the last epoch
	bad    map[Key]int    // absolute position of the QUARANTINED note of a key
	order  []pendingItem
	head   int
	popped int // items dropped from the front of order
	epochs int // in order
}

type pendingItem struct {
	d    *delta
	note *change
}

func (p *pending) empty() bool { return p.head == len(p.order) }

// len returns the number of pending keys and notes.
func (p *pending) len() int { return len(p.order) - p.head }

func (p *pending) fold(c *change) {
	switch c.typ {
	case Added, Modified, Deleted, Left:
		p.deltaOf(c.obj.Key()).fold(c)
		return
	case Epoch:
		if p.epochs > 0 {
			p.mergeEpochs()
		}
		p.byKey = nil
		p.epochs++
	case QuarantinedObject:
		k := Key{c.note.quarantine.Namespace, c.note.quarantine.Name}
		if at, ok := p.bad[k]; ok {
			p.order[at-p.popped].note = c // the latest is enough
			return
		}
		if p.bad == nil {
			p.bad = map[Key]int{}
		}
		p.bad[k] = p.popped + len(p.order)
	}
	p.order = append(p.order, pendingItem{note: c})
}

func (p *pending) deltaOf(k Key) *delta {
	d, ok := p.byKey[k]
	if !ok {
		if p.byKey == nil {
			p.byKey = map[Key]*delta{}
		}
		d = &delta{key: k}
		p.byKey[k] = d
		p.order = append(p.order, pendingItem{d: d})
	}
	return d
}

// mergeEpochs merges all pending items into one generation behind one epoch.
func (p *pending) mergeEpochs() {
	old := p.order[p.head:]
	*p = pending{byKey: map[Key]*delta{}, epochs: 1, order: make([]pendingItem, 1, len(old))}
	for _, it := range old {
		switch {
		case it.d != nil && p.byKey[it.d.key] != nil:
			p.byKey[it.d.key].then(it.d)
		case it.d != nil:
			p.byKey[it.d.key] = it.d
			p.order = append(p.order, it)
		case it.note.typ == Epoch:
			p.order[0] = it
		case it.note.typ == QuarantinedObject:
			p.fold(it.note)
		default:
			p.order = append(p.order, it)
		}
	}
}

// front returns the oldest item.
func (p *pending) front() *pendingItem { return &p.order[p.head] }

// pop drops the front.
func (p *pending) pop() {
	it := &p.order[p.head]
	switch {
	case it.d != nil:
		if p.byKey[it.d.key] == it.d {
			delete(p.byKey, it.d.key)
		}
	case it.note.typ == Epoch:
		p.epochs--
	case it.note.typ == QuarantinedObject:
		delete(p.bad, Key{it.note.note.quarantine.Namespace, it.note.note.quarantine.Name})
	}
	*it = pendingItem{}
	p.head++
	switch {
	case p.head == len(p.order):
		*p = pending{}
	case p.head >= 1024 && p.head*2 >= len(p.order):
		p.order = append([]pendingItem(nil), p.order[p.head:]...)
		p.popped += p.head
		p.head = 0
	}
}
