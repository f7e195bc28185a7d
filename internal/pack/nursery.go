package pack

import (
	"slices"
	"time"
)

// What a watch brings is often replaced soon: a pod that starts, a status that is written every second. So the bytes
// of a changed object stay as they are while it is young, which costs nothing, and only what has survived for a
// while, or is the oldest of too much, is packed. What is replaced before that never is.
type nursery struct {
	list  []infant // the oldest first
	bytes int      // of those in list, the superseded ones included
	ticks uint32
	timer *time.Timer
	limit int
}

type infant struct {
	sibling
	bytes int32
	tick  uint32
}

const (
	youngTick     = 5 * time.Second // what is older than one of these and younger than two is packed
	minYoungBytes = 8 << 20
	maxYoungBytes = 64 << 20
	youngShare    = 2 // of the arena
)

// KeepYoung has an item packed that may not last: later than Keep does, if it is still current then.
func (p *Packer) KeepYoung(it *Item, group uint64) {
	h := it.heap.Load()
	if h == nil {
		return
	}
	y, n := &p.young, len(h.data)
	p.mu.Lock()
	y.list = append(y.list, infant{sibling{it, group}, int32(min(n, 1<<30)), y.ticks})
	y.bytes += n
	limit := max(y.limit, minYoungBytes)
	assist := y.bytes > 4*limit
	switch {
	case p.closed || assist:
	case y.bytes > limit && !p.running:
		p.running = true
		p.goLocked(p.run)
	case y.timer == nil:
		y.timer = time.AfterFunc(youngTick, p.grow)
	}
	p.mu.Unlock()
	if assist { // it comes faster than it can be packed in the background
		p.packOldest(limit, limit/8)
	}
}

// packOldest packs so many of the oldest that the rest is half of limit, but not many more bytes than most; what was
// superseded is dropped on the way.
func (p *Packer) packOldest(limit, most int) {
	p.mu.Lock()
	list := p.young.take()
	p.mu.Unlock()
	rest, bytes := list[:0], 0
	for _, f := range list {
		if !f.item.Retired() {
			rest = append(rest, f)
			bytes += int(f.bytes)
		}
	}
	var batch []sibling
	if bytes > limit*3/4 { // otherwise it was dropping that helped
		for until := max(limit/2, bytes-most); bytes > until; {
			batch = append(batch, rest[0].sibling)
			bytes -= int(rest[0].bytes)
			rest = rest[1:]
		}
	}
	p.mu.Lock()
	p.young.list = slices.Concat(rest, p.young.list) // a copy: what was taken is not held any longer
	p.young.bytes += bytes
	p.mu.Unlock()
	p.pack(batch)
}

// youngLimit returns how many bytes may be young: a part of what is packed.
func (p *Packer) youngLimit() int {
	p.arena.mu.RLock()
	live := p.arena.live
	p.arena.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.young.limit = int(min(max(live/youngShare, minYoungBytes), maxYoungBytes))
	return p.young.limit
}

func (y *nursery) take() []infant {
	list := y.list
	y.list, y.bytes = nil, 0
	return list
}

// grow packs what has been young for long enough. It is called by a timer, which runs only while there is something
// young.
func (p *Packer) grow() {
	y := &p.young
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.rounds++
	defer p.roundOver()
	y.ticks++
	var batch []sibling
	n := 0
	for ; n < len(y.list) && y.ticks-y.list[n].tick > 1; n++ {
		batch = append(batch, y.list[n].sibling)
		y.bytes -= int(y.list[n].bytes)
	}
	y.list = slices.Clone(y.list[n:])
	more := len(y.list) > 0
	if y.timer = nil; more {
		y.timer = time.AfterFunc(youngTick, p.grow)
	}
	p.mu.Unlock()
	if p.pack(batch); !more {
		p.rest()
	}
}
