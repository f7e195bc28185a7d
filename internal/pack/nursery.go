package pack

import (
	"slices"
	"time"
)

// nursery holds recently changed items. Many are replaced soon: a starting pod, or a status written every second. Their
// bytes stay unpacked while they are young, which costs no time. An item is packed when it has survived a while, or
// when it is the oldest and there are too many bytes.
type nursery struct {
	list  []infant // oldest first
	bytes int      // bytes of list, including superseded items
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
	youngTick     = 5 * time.Second // an item is packed when it is between one and two ticks old
	minYoungBytes = 8 << 20
	maxYoungBytes = 64 << 20
	youngShare    = 2 // divisor of the arena's live bytes
)

// KeepYoung packs an item that may not last. It waits longer than Keep and skips an item that is superseded by then.
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
	if assist { // items arrive faster than the background packs them
		p.packOldest(limit, limit/8)
	}
}

// packOldest packs the oldest items until the rest is half of limit, but at most about most bytes. It drops superseded
// items.
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
	if bytes > limit*3/4 { // otherwise dropping superseded items was enough
		for until := max(limit/2, bytes-most); bytes > until; {
			batch = append(batch, rest[0].sibling)
			bytes -= int(rest[0].bytes)
			rest = rest[1:]
		}
	}
	p.mu.Lock()
	p.young.list = slices.Concat(rest, p.young.list) // a copy, so that packed items are not retained
	p.young.bytes += bytes
	p.mu.Unlock()
	p.pack(batch)
}

// youngLimit returns the limit of young bytes: a share of the packed bytes.
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

// grow packs the items that have been young long enough. A timer calls it, which runs only while there are young items.
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
