package pack

import (
	"slices"
	"time"
)

// sibling is an item and its group. The bytes of a group's items are expected to resemble each other.
type sibling struct {
	item  *Item
	group uint64
}

// queue holds new items, which are packed soon. The lock of its owner guards it.
type queue struct {
	list     []sibling
	bytes    int
	complete bool // no items follow soon
}

// isDue reports whether the items are to be packed now.
func (q *queue) isDue() bool { return q.bytes >= packAt || q.complete }

func (q *queue) add(s sibling, bytes int) {
	q.list = append(q.list, s)
	q.bytes += bytes
}

func (q *queue) take() []sibling {
	batch := q.list
	*q = queue{}
	return batch
}

// nursery holds recently changed items. Many are replaced soon: a starting pod, or a status written every second. Their
// bytes stay unpacked while they are young, which costs no time. An item is packed when it has survived a while, or
// when it is the oldest and there are too many bytes. The lock of its owner guards it.
type nursery struct {
	list  []infant // oldest first
	bytes int      // bytes of list, including superseded items
	ticks uint32
	timer *time.Timer // ends the current tick; nil while there are no items
	share int         // limit that follows from the packed bytes
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
	youngShare    = 2 // divisor of the bytes of slots in use
)

func (y *nursery) add(s sibling, bytes int) {
	y.list = append(y.list, infant{s, int32(min(bytes, 1<<30)), y.ticks})
	y.bytes += bytes
}

// limit returns the number of bytes above which the oldest items are packed.
func (y *nursery) limit() int { return max(y.share, minYoungBytes) }

// setLimit derives the limit from the bytes of the slots in use.
func (y *nursery) setLimit(live int64) { y.share = int(min(live/youngShare, maxYoungBytes)) }

// awaitTick calls onTick after a tick, unless that is due already.
func (y *nursery) awaitTick(onTick func()) {
	if y.timer == nil {
		y.timer = time.AfterFunc(youngTick, onTick)
	}
}

// awaitsTick reports whether the end of a tick is due.
func (y *nursery) awaitsTick() bool { return y.timer != nil }

func (y *nursery) stopTicks() {
	if y.timer != nil {
		y.timer.Stop()
	}
}

// tick ends a tick. It removes and returns the items that have been young long enough.
func (y *nursery) tick() (aged []sibling, more bool) {
	y.ticks++
	y.timer = nil
	n := 0
	for ; n < len(y.list) && y.ticks-y.list[n].tick > 1; n++ {
		aged = append(aged, y.list[n].sibling)
		y.bytes -= int(y.list[n].bytes)
	}
	y.list = slices.Clone(y.list[n:])
	return aged, len(y.list) > 0
}

// take removes and returns all items.
func (y *nursery) take() []infant {
	list := y.list
	y.list, y.bytes = nil, 0
	return list
}

// putBack adds items that are older than the present ones.
func (y *nursery) putBack(older []infant, bytes int) {
	y.list = slices.Concat(older, y.list) // a copy, so that packed items are not retained
	y.bytes += bytes
}

// oldest splits a list of items: the oldest ones, so that the rest is half of limit, but at most about most bytes. It
// drops superseded items, and splits nothing if that was enough. It reuses list.
func oldest(list []infant, limit, most int) (batch []sibling, rest []infant, bytes int) {
	rest = list[:0]
	for _, f := range list {
		if !f.item.Retired() {
			rest = append(rest, f)
			bytes += int(f.bytes)
		}
	}
	if bytes > limit*3/4 {
		for until := max(limit/2, bytes-most); bytes > until; {
			batch = append(batch, rest[0].sibling)
			bytes -= int(rest[0].bytes)
			rest = rest[1:]
		}
	}
	return batch, rest, bytes
}
