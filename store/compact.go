package store

// MemoryStats say where the memory of a store is; the Go heap has the headers and indexes besides.
type MemoryStats struct {
	Live         int64 // bytes of encoded objects in the arena
	Mapped       int64 // bytes of the arena, free slots included
	Dictionaries int
	Unpacked     int64 // bytes of new objects that wait to be packed
}

// MemoryStats returns where the memory of the store is.
func (s *Store) MemoryStats() MemoryStats {
	p := &s.pack
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arena.mu.RLock()
	defer p.arena.mu.RUnlock()
	return MemoryStats{Live: p.arena.live, Mapped: p.arena.mapped, Dictionaries: len(p.dicts) - len(p.freeID), Unpacked: int64(p.bytes + p.young.bytes)}
}

// Flush makes all objects compact now; otherwise that happens in the background, in rounds.
func (s *Store) Flush() {
	s.pack.flush()
	if s.pack.worthCompacting() {
		s.compact()
	}
}

const (
	compactAbove = 4 << 20 // bytes; a small arena may be as sparse as it likes
	compactEvery = 4096    // slots given back between two looks
)

// worthCompacting says whether less than half of a large arena is in use.
func (p *packer) worthCompacting() bool {
	p.arena.mu.RLock()
	defer p.arena.mu.RUnlock()
	return p.arena.mapped > compactAbove && p.arena.live*2 < p.arena.mapped
}

// compactSoon looks now and then whether the arena has become sparse, and has it emptied in the background.
func (s *Store) compactSoon() {
	p := &s.pack
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
		s.compact()
		p.mu.Lock()
		p.compacting = false
		p.mu.Unlock()
	})
}

// compact moves objects out of sparse blocks, which are given back when they are empty.
func (s *Store) compact() {
	p := &s.pack
	p.work.Lock()
	defer p.work.Unlock()
	for r := range s.root.Load().base.all() {
		p.relocate(r)
	}
}

func (p *packer) relocate(r *Record) {
	a := p.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.body.ref == 0 || !a.sparse(r.body.ref) {
		return
	}
	p.raw = append(p.raw[:0], a.data(r.body.ref)...)
	if ref, ok := a.putElsewhere(p.raw, r.body.ref); ok {
		a.free(r.body.ref)
		r.body.ref = ref
	}
}
