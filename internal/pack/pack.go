package pack

import (
	"cmp"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	packAt       = 2 << 20   // bytes of new items that start a round of packing
	packRest     = 256 << 10 // bytes of new items that are packed when no more follow
	packAssist   = 16 << 20  // bytes of new items at which the caller of Keep packs them itself
	yieldEvery   = 8         // items, a few µs each
	compactAbove = 4 << 20   // bytes; smaller arenas are not compacted
	compactEvery = 4096      // superseded items between two checks
)

// Packer compresses items in the background. It has no goroutine while it has no work. It is safe for concurrent use.
// The owner must call Close. The items stay readable after that.
type Packer struct {
	items   iter.Seq[*Item]
	packed  packedItems
	retired atomic.Int64 // number of superseded items

	mu     sync.Mutex // guards the items that wait, and the rounds
	queue  queue
	young  nursery
	rounds rounds

	work       sync.Mutex // one round at a time
	compressor *compressor
}

// Stats describes the memory of a Packer.
type Stats struct {
	Live         int64 // bytes of items in the arena
	Mapped       int64 // bytes of the arena, free slots included
	Dictionaries int
	Unpacked     int64 // bytes of items that are not packed yet
}

// New returns a Packer. items must yield all current items. The Packer uses it to compact the arena.
func New(items iter.Seq[*Item]) *Packer {
	p := &Packer{items: items, packed: packedItems{arena: newArena()}}
	p.compressor = newCompressor(&p.packed)
	p.rounds.idle.L = &p.mu
	return p
}

// Append appends the bytes of an item to dst. With a nil dst it may return shared bytes, which must not be modified. An
// error means that memory is corrupt.
func (p *Packer) Append(dst []byte, it *Item) ([]byte, error) { return p.packed.append(dst, it) }

// Read returns the bytes of an item, which must not be modified. They are either shared, or in buf, which grows as
// needed, and then valid until the next use of buf.
func (p *Packer) Read(it *Item, buf *[]byte) ([]byte, error) {
	if h := it.unpacked(); h != nil {
		return h.data, nil
	}
	if *buf == nil {
		*buf = []byte{} // with nil, append may return bytes that other readers share
	}
	out, err := p.packed.append((*buf)[:0], it)
	if err == nil {
		*buf = out
	}
	return out, err
}

// Keep packs an item soon, together with others of its group. group is a hash of the properties that similar objects
// share.
func (p *Packer) Keep(it *Item, group uint64) {
	h := it.onHeap()
	if h == nil {
		return
	}
	p.mu.Lock()
	p.queue.add(sibling{it, group}, len(h.data))
	var batch []sibling
	switch {
	case p.queue.bytes >= packAssist:
		batch = p.queue.take()
	case p.queue.bytes >= packAt:
		p.startPackingLocked()
	}
	p.mu.Unlock()
	if batch != nil {
		p.pack(batch)
	}
}

// KeepNoMore packs the items of Keep that still wait, unless they are so few that dictionaries would need more memory.
func (p *Packer) KeepNoMore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queue.bytes >= packRest {
		p.queue.complete = true
		p.startPackingLocked()
	}
}

// KeepYoung packs an item that may not last. It waits longer than Keep and skips an item that is superseded by then.
func (p *Packer) KeepYoung(it *Item, group uint64) {
	h := it.onHeap()
	if h == nil {
		return
	}
	p.mu.Lock()
	p.young.add(sibling{it, group}, len(h.data))
	limit := p.young.limit()
	assist := p.young.bytes > 4*limit
	switch {
	case p.rounds.closed || assist:
	case p.young.bytes > limit && !p.rounds.packing:
		p.startPackingLocked()
	default:
		p.young.awaitTick(p.onTick)
	}
	p.mu.Unlock()
	if assist { // items arrive faster than the background packs them
		p.packOldest(limit, limit/8)
	}
}

// Retire moves a superseded item back to the heap. The garbage collector frees it after its last reference. From time
// to time Retire checks whether the arena is sparse, and then has it compacted in the background.
func (p *Packer) Retire(it *Item) {
	p.packed.retire(it)
	if p.retired.Add(1)%compactEvery != 0 || !p.worthCompacting() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rounds.closed || p.rounds.compacting {
		return
	}
	p.rounds.compacting = true
	p.goLocked(func() {
		p.compact()
		p.mu.Lock()
		p.rounds.compacting = false
		p.mu.Unlock()
	})
}

// Flush packs all queued items and compacts the arena.
func (p *Packer) Flush() {
	p.mu.Lock()
	batch := p.queue.take()
	for _, f := range p.young.take() {
		batch = append(batch, f.sibling)
	}
	p.mu.Unlock()
	p.pack(batch)
	p.mu.Lock()
	p.rounds.wait()
	p.mu.Unlock()
	p.rest()
	if p.worthCompacting() {
		p.compact()
	}
}

// Close stops background work and waits for running rounds.
func (p *Packer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds.closed = true
	p.young.stopTicks()
	p.rounds.wait()
}

// Stats returns the current memory use.
func (p *Packer) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	live, mapped, dictionaries := p.packed.usage()
	return Stats{
		Live: live, Mapped: mapped, Dictionaries: dictionaries, Unpacked: int64(p.queue.bytes + p.young.bytes),
	}
}

// goLocked starts a round in the background.
func (p *Packer) goLocked(round func()) {
	p.rounds.begin()
	go func() {
		defer p.endRound()
		round()
	}()
}

func (p *Packer) endRound() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rounds.end()
}

// startPackingLocked starts the round that packs waiting items, unless it runs or the Packer is closed.
func (p *Packer) startPackingLocked() {
	if !p.rounds.packing && !p.rounds.closed {
		p.rounds.packing = true
		p.goLocked(p.packWaiting)
	}
}

// packWaiting packs items until few of them wait.
func (p *Packer) packWaiting() {
	for {
		live, _, _ := p.packed.usage()
		p.mu.Lock()
		p.young.setLimit(live)
		limit := p.young.limit()
		switch {
		case p.queue.isDue():
			batch := p.queue.take()
			p.mu.Unlock()
			p.pack(batch)
			continue
		case p.young.bytes > limit:
			p.mu.Unlock()
			p.packOldest(limit, 4*limit)
			continue
		}
		p.rounds.packing = false
		idle := !p.young.awaitsTick() // otherwise onTick calls rest
		p.mu.Unlock()
		if idle {
			p.rest()
		}
		return
	}
}

// packOldest packs the oldest young items until the rest is half of limit, but at most about most bytes.
func (p *Packer) packOldest(limit, most int) {
	p.mu.Lock()
	list := p.young.take()
	p.mu.Unlock()
	batch, rest, bytes := oldest(list, limit, most)
	p.mu.Lock()
	p.young.putBack(rest, bytes)
	p.mu.Unlock()
	p.pack(batch)
}

// onTick packs the items that have been young long enough. A timer calls it, which runs only while there are young
// items.
func (p *Packer) onTick() {
	p.mu.Lock()
	if p.rounds.closed {
		p.mu.Unlock()
		return
	}
	p.rounds.begin()
	defer p.endRound()
	batch, more := p.young.tick()
	if more {
		p.young.awaitTick(p.onTick)
	}
	p.mu.Unlock()
	if p.pack(batch); !more {
		p.rest()
	}
}

// pack moves a batch into the arena.
func (p *Packer) pack(batch []sibling) {
	p.work.Lock()
	defer p.work.Unlock()
	batch = slices.DeleteFunc(batch, func(s sibling) bool { return s.item.Retired() })
	// Sorting by group makes the encoder of each dictionary once per batch.
	slices.SortFunc(batch, func(a, b sibling) int { return cmp.Compare(a.group, b.group) })
	if p.compressor.needsSample() {
		for _, s := range batch {
			if h := s.item.unpacked(); h != nil {
				p.compressor.learn(s.group, h.data)
			}
		}
		p.compressor.endSample()
	}
	for i, s := range batch {
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched() // events have priority, even on a single core
		}
		h := s.item.unpacked()
		if h == nil {
			continue
		}
		packed, d := p.compressor.compress(s.group, h.data)
		p.packed.put(s.item, h, packed, d)
		p.compressor.judge(s.group, d, len(packed), h.data)
	}
	p.compressor.endBatch()
}

// rest releases the memory that only packing needs.
func (p *Packer) rest() {
	p.work.Lock()
	defer p.work.Unlock()
	p.compressor.releaseEncoders()
}

// worthCompacting reports whether less than half of a large arena is in use.
func (p *Packer) worthCompacting() bool {
	live, mapped, _ := p.packed.usage()
	return mapped > compactAbove && live*2 < mapped
}

// compact moves items out of sparse blocks.
func (p *Packer) compact() {
	p.work.Lock()
	defer p.work.Unlock()
	for it := range p.items {
		p.packed.relocate(it)
	}
}
