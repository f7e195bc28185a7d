package pack

// Stats describes the memory of a Packer.
type Stats struct {
	Live         int64 // bytes of items in the arena
	Mapped       int64 // bytes of the arena, free slots included
	Dictionaries int
	Unpacked     int64 // bytes of items that are not packed yet
}

// Stats returns the current memory use.
func (p *Packer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arena.mu.RLock()
	defer p.arena.mu.RUnlock()
	return Stats{
		Live: p.arena.live, Mapped: p.arena.mapped, Dictionaries: len(p.dicts) - len(p.freeID),
		Unpacked: int64(p.bytes + p.young.bytes),
	}
}

const (
	compactAbove = 4 << 20 // bytes; smaller arenas are not compacted
	compactEvery = 4096    // freed slots between two checks
)

// worthCompacting reports whether less than half of a large arena is in use.
func (p *Packer) worthCompacting() bool {
	p.arena.mu.RLock()
	defer p.arena.mu.RUnlock()
	return p.arena.mapped > compactAbove && p.arena.live*2 < p.arena.mapped
}

// compactSoon checks from time to time whether the arena is sparse, and then compacts it in the background.
func (p *Packer) compactSoon() {
	if p.freed.Add(1)%compactEvery != 0 || !p.worthCompacting() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.compacting {
		return
	}
	p.compacting = true
	p.goLocked(func() {
		p.compact()
		p.mu.Lock()
		p.compacting = false
		p.mu.Unlock()
	})
}

// compact moves items out of sparse blocks. A block is released when it is empty.
func (p *Packer) compact() {
	p.work.Lock()
	defer p.work.Unlock()
	for it := range p.items {
		p.relocate(it)
	}
}

func (p *Packer) relocate(it *Item) {
	a := p.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	at := it.at.Load()
	if at == 0 || at == retired || !a.sparse(slotRef(at)) {
		return
	}
	p.raw = append(p.raw[:0], a.data(slotRef(at))...)
	if ref, ok := a.putElsewhere(p.raw, slotRef(at)); ok {
		a.free(slotRef(at))
		it.at.Store(uint64(ref))
	}
}
