package store

// hotRing decides which decoded objects are held, up to a limit of bytes. The newest objects are held for a short time,
// so that the reader of an event finds the object that its handler had. An object that leaves them stays only if there
// is room, or if it was asked for more often than an object that is held.
// So one read of all objects displaces nothing, reads of more objects than there is room for keep a part of them, and
// objects that are read again and again find room.
//
// It is TinyLFU [Einziger, Friedman, Manes: TinyLFU, a Highly Efficient Cache Admission Policy, 2015] with an exact
// table instead of a sketch, and a clock instead of a segmented LRU. Plain data under hotSet.mu.
type hotRing struct {
	limit  int64 // of bytes; negative: nothing is held
	bytes  int64
	newest []hotEntry // in the order of their arrival
	young  int64      // bytes of newest
	ring   []hotEntry
	hand   int
	asked  askedTable
}

// hotEntry is a decoded object that is held.
type hotEntry struct {
	rec  *Record
	form *form
	heat uint8 // how often it was asked for
}

const (
	// newestShare is the part of the limit that the newest objects may take: an eighth.
	newestShare = 8
	// maxHeat bounds the counts, so that an object that is not read any more gives way soon.
	maxHeat = 7
	// maxRivals bounds the search for an object to replace.
	maxRivals = 8
)

// ask returns how often an object was asked for lately while it was not held, this time included.
func (h *hotRing) ask(hash uint64) uint8 {
	if h.asked.isEmpty() {
		return 1
	}
	n, aged := h.asked.add(hash)
	if aged {
		for i := range h.ring {
			h.ring[i].heat /= 2
		}
	}
	return n
}

// add holds an object, and drops others until the limit holds. The newest object is held even if it exceeds the limit.
func (h *hotRing) add(e hotEntry, drop func(hotEntry)) {
	h.newest = append(h.newest, e)
	h.young += e.cost()
	h.bytes += e.cost()
	for len(h.newest) > 1 && (h.young > h.limit/newestShare || h.bytes > h.limit) {
		oldest := h.newest[0]
		h.newest[0] = hotEntry{}
		h.newest = h.newest[1:]
		h.young -= oldest.cost()
		h.settle(oldest, drop)
	}
	for h.bytes > h.limit && len(h.ring) > 0 {
		h.evict(drop)
	}
}

// settle puts an object that is not among the newest any more into the ring, or drops it.
func (h *hotRing) settle(e hotEntry, drop func(hotEntry)) {
	e.takeUse()
	if h.bytes <= h.limit && !e.rec.isSuperseded() {
		h.ring = append(h.ring, e)
		return
	}
	h.asked.fit(len(h.ring))
	out := e
	if at := h.rival(&e); at >= 0 && !e.rec.isSuperseded() {
		out, h.ring[at] = h.ring[at], e
	}
	h.bytes -= out.cost()
	drop(out)
}

// rival returns the position of an object of the ring that another one may replace, or -1.
func (h *hotRing) rival(e *hotEntry) int {
	for range min(maxRivals, len(h.ring)) {
		at := h.next()
		held := &h.ring[at]
		if held.rec.isSuperseded() {
			return at
		}
		if e.heat < 2 { // asked for once: it displaces nothing
			continue
		}
		held.takeUse()
		if e.heat > held.heat+1 { // in turns of reads, an object may be read once more than the next one
			return at
		}
	}
	return -1
}

// evict drops an object of the ring that was not used since the hand last passed.
func (h *hotRing) evict(drop func(hotEntry)) {
	at := h.next()
	for !h.ring[at].rec.isSuperseded() && h.ring[at].takeUse() {
		at = h.next()
	}
	out, last := h.ring[at], len(h.ring)-1
	h.ring[at] = h.ring[last]
	h.ring[last] = hotEntry{}
	h.ring = h.ring[:last]
	h.bytes -= out.cost()
	drop(out)
}

// next moves the hand on, and returns the position before.
func (h *hotRing) next() int {
	if h.hand >= len(h.ring) {
		h.hand = 0
	}
	h.hand++
	return h.hand - 1
}

// len returns the number of objects.
func (h *hotRing) len() int { return len(h.newest) + len(h.ring) }

func (e *hotEntry) cost() int64 { return int64(e.form.cost) }

// takeUse counts a use since the last call, if there was one.
func (e *hotEntry) takeUse() bool {
	if !e.form.used.Swap(false) {
		return false
	}
	e.heat = min(e.heat+1, maxHeat)
	return true
}

// askedTable counts how often objects are asked for. It forgets: all counts are halved after some time, and objects
// displace each other. It never counts too much.
type askedTable struct {
	sets [][askedWays]uint32 // a power of two; a place has 28 bits of a hash and 4 bits of the count
	adds int                 // since the counts were halved
}

const (
	askedWays  = 4
	askedCount = 1<<4 - 1 // the bits of the count; maxHeat fits
	// askedPlaces is the least number of places for each object in the ring.
	askedPlaces = 4
)

func (a *askedTable) isEmpty() bool { return a.sets == nil }

// fit makes the table large enough for a ring of n objects.
func (a *askedTable) fit(n int) {
	sets := max(16, len(a.sets))
	for sets*askedWays < n*askedPlaces {
		sets *= 2
	}
	if sets > len(a.sets) {
		a.sets, a.adds = make([][askedWays]uint32, sets), 0
	}
}

// add counts an object, and returns its count. aged reports whether all counts were halved.
func (a *askedTable) add(hash uint64) (n uint8, aged bool) {
	if a.adds++; a.adds > 2*askedWays*len(a.sets) {
		a.adds, aged = 0, true
		a.halve()
	}
	set := &a.sets[hash&uint64(len(a.sets)-1)]
	tag, least := uint32(hash>>32)&^askedCount, 0
	for i, place := range set {
		if place&^askedCount == tag {
			n = uint8(min(place&askedCount+1, maxHeat))
			set[i] = tag | uint32(n)
			return n, aged
		}
		if place&askedCount < set[least]&askedCount {
			least = i
		}
	}
	if set[least]&askedCount > 1 {
		set[least]--
	} else {
		set[least] = tag | 1
	}
	return 1, aged
}

func (a *askedTable) halve() {
	for i := range a.sets {
		for j, place := range a.sets[i] {
			a.sets[i][j] = place&^askedCount | place&askedCount/2
		}
	}
}
