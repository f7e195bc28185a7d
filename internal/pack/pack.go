// Package pack keeps many encoded objects in little memory.
//
// Encoded objects of one kind resemble each other, and those of one workload differ in a few identifiers only. Package
// pack compresses them with dictionaries that it builds from the objects themselves. One common dictionary is a sample
// of all objects. Each group of similar objects also has its own, which is one of its objects. (s2 with such a
// dictionary compresses a pod of 4.9 KB to about 0.5 KB in 6 µs, and decompresses it in 0.5 µs.)
//
// A new [Item] keeps its bytes on the heap. When enough new bytes have accumulated, a background goroutine packs them
// into the arena, which is memory outside the Go heap. Items changed by a watch wait longer (nursery.go). A superseded
// item moves back to the heap, where the garbage collector frees it. The arena therefore holds current objects only and
// needs no collector: compaction empties sparse blocks (compact.go).
//
// Reading order: item.go, pack.go, nursery.go, dict.go, arena.go with memory_unix.go, compact.go.
//
// Lock order: work, mu, arena.mu. No lock is held while user code runs.
package pack

import (
	"encoding/binary"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/klauspost/compress/s2"
)

const (
	packAt       = 2 << 20  // bytes of new items that start a round of packing
	packAssist   = 16 << 20 // bytes of new items at which the caller of Keep packs them itself
	packMin      = 128      // bytes; smaller items are not compressed
	groupMin     = 12       // objects in a group before it gets its own dictionary
	sampleBytes  = s2.MaxDictSize
	sampleGroups = 4 // objects of one group in the sample
	maxEncoders  = 384
	maxGroups    = 1 << 16
	yieldEvery   = 8 // items, a few µs each
)

// Packer compresses items in the background. It has no goroutine while it has no work. It is safe for concurrent use.
// The owner must call Close. The items stay readable after that.
type Packer struct {
	items iter.Seq[*Item]
	arena *arena

	mu         sync.Mutex // guards the queue
	queue      []sibling
	bytes      int
	young      nursery
	running    bool
	closed     bool
	compacting bool
	rounds     int          // number of running background rounds
	idle       sync.Cond    // signaled when rounds is 0; a WaitGroup does not allow Wait while rounds start
	freed      atomic.Int64 // number of freed slots

	work     sync.Mutex // one round at a time; guards the fields below
	groups   map[uint64]*packGroup
	common   *dict
	encoders map[*dict]weak.Pointer[s2.Dict]
	held     map[*dict]*s2.Dict // encoders in use; cleared when the queue is empty
	sample   []byte
	taken    map[uint64]int
	buf      []byte
	raw      []byte

	dicts  []*dict // by id-1; guarded by arena.mu
	freeID []uint32
}

// sibling is an item and its group. The bytes of a group's items are expected to resemble each other.
type sibling struct {
	item  *Item
	group uint64
}

// New returns a Packer. items must yield all current items. The Packer uses it to compact the arena.
func New(items iter.Seq[*Item]) *Packer {
	p := &Packer{
		items: items, arena: newArena(),
		groups: map[uint64]*packGroup{}, encoders: map[*dict]weak.Pointer[s2.Dict]{}, taken: map[uint64]int{},
		held: map[*dict]*s2.Dict{},
	}
	p.idle.L = &p.mu
	return p
}

// Keep packs an item soon, together with others of its group. group is a hash of the properties that similar objects
// share.
func (p *Packer) Keep(it *Item, group uint64) {
	h := it.heap.Load()
	if h == nil {
		return
	}
	p.mu.Lock()
	p.queue = append(p.queue, sibling{it, group})
	p.bytes += len(h.data)
	var batch []sibling
	switch {
	case p.bytes >= packAssist:
		batch = p.takeLocked()
	case p.bytes >= packAt && !p.running && !p.closed:
		p.running = true
		p.goLocked(p.run)
	}
	p.mu.Unlock()
	if batch != nil {
		p.pack(batch)
	}
}

// Flush packs all queued items and compacts the arena.
func (p *Packer) Flush() {
	p.mu.Lock()
	batch := p.takeLocked()
	for _, f := range p.young.take() {
		batch = append(batch, f.sibling)
	}
	p.mu.Unlock()
	p.pack(batch)
	p.mu.Lock()
	p.awaitLocked()
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
	p.closed = true
	if p.young.timer != nil {
		p.young.timer.Stop()
	}
	p.awaitLocked()
}

// goLocked starts a round in the background.
func (p *Packer) goLocked(round func()) {
	p.rounds++
	go func() {
		defer p.roundOver()
		round()
	}()
}

func (p *Packer) roundOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rounds--; p.rounds == 0 {
		p.idle.Broadcast()
	}
}

// awaitLocked waits until no round runs. It releases the lock while it waits.
func (p *Packer) awaitLocked() {
	for p.rounds > 0 {
		p.idle.Wait()
	}
}

func (p *Packer) takeLocked() []sibling {
	batch := p.queue
	p.queue, p.bytes = nil, 0
	return batch
}

func (p *Packer) run() {
	for {
		limit := p.youngLimit()
		p.mu.Lock()
		switch {
		case p.bytes >= packAt:
			batch := p.takeLocked()
			p.mu.Unlock()
			p.pack(batch)
			continue
		case p.young.bytes > limit:
			p.mu.Unlock()
			p.packOldest(limit, 4*limit)
			continue
		}
		p.running = false
		idle := p.young.timer == nil // otherwise the timer calls rest
		p.mu.Unlock()
		if idle {
			p.rest()
		}
		return
	}
}

// pack moves a batch into the arena.
func (p *Packer) pack(batch []sibling) {
	p.work.Lock()
	defer p.work.Unlock()
	batch = slices.DeleteFunc(batch, func(s sibling) bool { return s.item.Retired() })
	// Sorting by group makes the encoder of each dictionary once per batch.
	slices.SortFunc(batch, func(a, b sibling) int {
		switch {
		case a.group < b.group:
			return -1
		case a.group > b.group:
			return 1
		}
		return 0
	})
	if p.common == nil {
		for _, s := range batch {
			if h := s.item.heap.Load(); h != nil && !h.packed {
				p.learn(s.group, h.data)
			}
		}
		if len(p.sample) >= sampleBytes/4 {
			p.common = p.newDict(p.sample)
			p.sample, p.taken = nil, nil
		}
	}
	for i, s := range batch {
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched() // events have priority, even on a single core
		}
		p.packOne(s)
	}
	p.endRound()
}

func (p *Packer) packOne(s sibling) {
	h := s.item.heap.Load()
	if h == nil || h.packed {
		return
	}
	g := p.groups[s.group]
	if g == nil {
		g = &packGroup{}
		p.groups[s.group] = g
	}
	g.seen++
	if g.dict == nil && g.seen >= groupMin && len(h.data) <= s2.MaxDictSize && len(h.data) >= packMin {
		p.renew(g, h.data)
	}
	d := g.dict
	if d == nil {
		d = p.common
	}
	var packed []byte
	switch {
	case len(h.data) < packMin:
		packed, d = nil, nil
	case d == nil:
		packed = s2.Encode(p.buf[:cap(p.buf)], h.data)
	default:
		packed = p.encoder(d).Encode(p.buf[:cap(p.buf)], h.data)
	}
	if g.dict != nil && d == g.dict {
		p.judge(g, len(packed), h.data)
	}
	if cap(packed) > cap(p.buf) {
		p.buf = packed
	}
	p.move(s.item, h, packed, d)
}

// rest releases the encoders.
func (p *Packer) rest() {
	p.work.Lock()
	defer p.work.Unlock()
	clear(p.held)
}

// endRound removes the encoders that were collected, and all groups if there are too many.
func (p *Packer) endRound() {
	if len(p.groups) > maxGroups {
		clear(p.groups)
	}
	for d, w := range p.encoders {
		if w.Value() == nil {
			delete(p.encoders, d)
		}
	}
}

// move stores the packed form, or the original bytes if packed is nil, in a slot, unless the item was superseded in the
// meantime.
func (p *Packer) move(it *Item, h *loose, packed []byte, d *dict) {
	data := packed
	id := uint32(0) // not compressed
	switch {
	case packed == nil:
		data = h.data
	case d == nil:
		id = 1
	default:
		id = d.id + 1
	}
	p.raw = binary.AppendUvarint(p.raw[:0], uint64(id))
	p.raw = append(p.raw, data...)
	a := p.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	if it.Retired() {
		return
	}
	ref, ok := a.put(p.raw)
	if !ok {
		if packed != nil {
			it.heap.Store(&loose{data: slices.Clone(packed), packed: true, dict: d})
		}
		return
	}
	if d != nil {
		d.refs++
	}
	it.at.Store(uint64(ref))
	it.heap.Store(nil)
}

// slot decodes the header of a slot. The caller holds arena.mu.
func (p *Packer) slot(ref slotRef) loose {
	b := p.arena.data(ref)
	id, n := binary.Uvarint(b)
	l := loose{data: b[n:], packed: id > 0}
	if id > 1 {
		l.dict = p.dicts[id-2]
	}
	return l
}

// unrefLocked drops a reference to a dictionary and frees its number if neither the arena nor a group uses it.
func (p *Packer) unrefLocked(d *dict) {
	d.refs--
	if d.refs > 0 || d == p.common || d.group != nil && d.group.dict == d {
		return
	}
	p.dicts[d.id-1] = nil
	p.freeID = append(p.freeID, d.id)
}
