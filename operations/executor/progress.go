package executor

// progress counts the operations in progress of the live runs, as they come and go. So reading the counts does
// not read the operations. The lock of runs guards it.
type progress struct {
	running   int
	near      int           // of those running: near their timeout at countedAt
	later     map[int64]int // other running ones, by the Unix second at which they will be near it
	countedAt int64         // Unix seconds; never decreases
}

// enter counts an operation that is near its timeout from the Unix second near on.
func (p *progress) enter(near int64) {
	p.running++
	if near <= p.countedAt {
		p.near++
		return
	}
	if p.later == nil {
		p.later = make(map[int64]int)
	}
	p.later[near]++
}

// leave undoes enter for an operation that was entered with the same second.
func (p *progress) leave(near int64) {
	p.running--
	if near <= p.countedAt {
		p.near--
		return
	}
	if p.later[near]--; p.later[near] == 0 {
		delete(p.later, near)
	}
}

// count returns the counts at a Unix second. Its cost grows with the number of different seconds in later.
func (p *progress) count(now int64) census {
	p.countedAt = max(p.countedAt, now)
	for at, n := range p.later {
		if at <= p.countedAt {
			p.near += n
			delete(p.later, at)
		}
	}
	return census{running: p.running, near: p.near}
}
