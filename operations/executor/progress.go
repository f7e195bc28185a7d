package executor

// progress counts the operations in progress of the live runs of an executor as they come and go, so that to look at the
// counts needs no look at the operations. Executor.mu guards it.
type progress struct {
	running, locked int
	near            int           // of those running, how many had used up nine tenths of their timeout at looked
	later           map[int64]int // the others, by the second at which they will have
	looked          int64         // in Unix seconds; it never goes back
}

// enter counts an operation that will have used up nine tenths of its timeout at a Unix second.
func (p *progress) enter(near int64) {
	p.running++
	if near <= p.looked {
		p.near++
		return
	}
	if p.later == nil {
		p.later = make(map[int64]int)
	}
	p.later[near]++
}

// leave is the opposite of enter for an operation that was entered with the same second.
func (p *progress) leave(near int64) {
	p.running--
	if near <= p.looked {
		p.near--
		return
	}
	if p.later[near]--; p.later[near] == 0 {
		delete(p.later, near)
	}
}

// look returns the counts at a Unix second. It costs as much as there are different seconds.
func (p *progress) look(now int64) census {
	p.looked = max(p.looked, now)
	for at, n := range p.later {
		if at <= p.looked {
			p.near += n
			delete(p.later, at)
		}
	}
	return census{running: p.running, near: p.near, locked: p.locked}
}
