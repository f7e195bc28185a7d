package pack

import (
	"weak"

	"github.com/klauspost/compress/s2"
)

const (
	packMin      = 128 // bytes; smaller items are not compressed
	groupMin     = 12  // objects in a group before it gets its own dictionary
	sampleBytes  = s2.MaxDictSize
	sampleGroups = 4 // objects of one group in the sample
	maxEncoders  = 384
	maxGroups    = 1 << 16
	dictRoom     = 32 << 10 // bytes that dictionaries share; a size class of the Go heap with one object in a span
)

// compressor compresses objects and makes the dictionaries for that. It has no lock; its owner serializes the calls.
type compressor struct {
	numbers dictNumbers
	groups  map[uint64]*packGroup
	common  *dict // nil until the sample is large enough

	sample []byte         // for the common dictionary; nil once that is made
	taken  map[uint64]int // objects of each group in the sample

	encoders map[*dict]weak.Pointer[s2.Dict]
	held     map[*dict]*s2.Dict // encoders in use
	buf      []byte             // the last result

	// room is where the next dictionaries lie. A dictionary of its own would be the only object that stays in a span of
	// the Go heap between the bytes of objects that are packed, and keep the whole span.
	room []byte
}

// dictNumbers registers the dictionaries whose items are kept.
type dictNumbers interface {
	register(d *dict)
	release(d *dict)
}

// packGroup is the state of a group of similar objects.
type packGroup struct {
	seen  int   // objects compressed
	dict  *dict // nil until the group has groupMin objects
	size  int   // size of the first object compressed with the dictionary, plus an eighth
	worse int   // consecutive objects that compressed badly
}

func newCompressor(numbers dictNumbers) *compressor {
	return &compressor{
		numbers: numbers, groups: map[uint64]*packGroup{}, taken: map[uint64]int{},
		encoders: map[*dict]weak.Pointer[s2.Dict]{}, held: map[*dict]*s2.Dict{},
	}
}

// needsSample reports whether there is no common dictionary yet.
func (c *compressor) needsSample() bool { return c.common == nil }

// learn adds an object to the sample for the common dictionary.
func (c *compressor) learn(group uint64, data []byte) {
	if c.taken[group] < sampleGroups && len(c.sample)+len(data) <= sampleBytes {
		c.taken[group]++
		c.sample = append(c.sample, data...)
	}
}

// endSample makes the common dictionary if the sample is large enough.
func (c *compressor) endSample() {
	if len(c.sample) >= sampleBytes/4 {
		c.common = c.newDict(c.sample)
		c.sample, c.taken = nil, nil
	}
}

// compress returns the compressed form of an object and the dictionary for it, which may be nil. It returns nil for an
// object that is too small. The result is valid until the next call.
func (c *compressor) compress(group uint64, data []byte) (packed []byte, d *dict) {
	g := c.groups[group]
	if g == nil {
		g = &packGroup{}
		c.groups[group] = g
	}
	g.seen++
	if len(data) < packMin {
		return nil, nil
	}
	if g.dict == nil && g.seen >= groupMin && len(data) <= s2.MaxDictSize {
		c.renew(g, data)
	}
	if d = g.dict; d == nil {
		d = c.common
	}
	if d == nil {
		packed = s2.Encode(c.buf[:cap(c.buf)], data)
	} else {
		packed = c.encoder(d).Encode(c.buf[:cap(c.buf)], data)
	}
	if cap(packed) > cap(c.buf) {
		c.buf = packed
	}
	return packed, d
}

// judge replaces the dictionary of a group whose objects no longer compress well. size is that of an object after its
// compression with d. The caller has stored the compressed form, since judge may release d.
func (c *compressor) judge(group uint64, d *dict, size int, data []byte) {
	g := c.groups[group]
	if g.dict == nil || d != g.dict {
		return
	}
	switch {
	case g.size == 0:
		if size >= 64 { // the object that became the dictionary compresses to almost nothing
			g.size = size + size/8
		}
		g.worse = 0
	case size > g.size+g.size/2:
		if g.worse++; g.worse >= groupMin {
			c.renew(g, data)
		}
	default:
		g.worse = 0
	}
}

// renew makes an object the dictionary of its group.
func (c *compressor) renew(g *packGroup, data []byte) {
	if g.dict != nil {
		c.numbers.release(g.dict)
	}
	g.dict, g.size, g.worse = c.newDict(data), 0, 0
}

// newDict makes a dictionary from a copy of data. It returns nil if data is not suitable.
func (c *compressor) newDict(data []byte) *dict {
	n := len(data) + 16 // s2 copies a dictionary without this capacity
	if n > cap(c.room) {
		c.room = make([]byte, 0, max(n, dictRoom))
	}
	own := append(c.room[:0:n], data...)
	c.room = c.room[n:n]
	d := &dict{data: own, s2: s2.MakeDict(own, nil)}
	if d.s2 == nil {
		return nil
	}
	c.numbers.register(d)
	return d
}

// encoder returns a copy of the dictionary with tables for encoding, which take 32 KB and as long to build as packing
// one object. c.held keeps encoders while there are items to pack. After that the garbage collector may free them.
func (c *compressor) encoder(d *dict) *s2.Dict {
	if e := c.held[d]; e != nil {
		return e
	}
	e := c.encoders[d].Value()
	if e == nil {
		e = s2.MakeDict(d.data, nil)
		c.encoders[d] = weak.Make(e)
	}
	if len(c.held) == maxEncoders {
		clear(c.held)
	}
	c.held[d] = e
	return e
}

// endBatch removes the encoders that were collected, and all groups if there are too many.
func (c *compressor) endBatch() {
	if len(c.groups) > maxGroups {
		for _, g := range c.groups {
			if g.dict != nil {
				c.numbers.release(g.dict)
			}
		}
		clear(c.groups)
	}
	for d, w := range c.encoders {
		if w.Value() == nil {
			delete(c.encoders, d)
		}
	}
}

// releaseEncoders lets the garbage collector free the encoders while nothing is compressed.
func (c *compressor) releaseEncoders() { clear(c.held) }
