package pack

import (
	"weak"

	"github.com/klauspost/compress/s2"
)

// dict is a dictionary. It keeps only the bytes; the encoders own the tables for encoding.
type dict struct {
	id    uint32
	data  []byte // shared by all its encoders
	s2    *s2.Dict
	refs  int // number of arena slots compressed with it; guarded by arena.mu
	group *packGroup
}

// packGroup is the state of a group of similar objects. It is guarded by Packer.work.
type packGroup struct {
	seen  int   // objects packed
	dict  *dict // nil until the group has groupMin objects
	size  int   // size of the first object compressed with the dictionary, plus an eighth
	worse int   // consecutive objects that compressed badly
}

// learn adds an object to the sample for the common dictionary.
func (p *Packer) learn(group uint64, raw []byte) {
	if p.taken[group] < sampleGroups && len(p.sample)+len(raw) <= sampleBytes {
		p.taken[group]++
		p.sample = append(p.sample, raw...)
	}
}

// judge replaces the dictionary of a group whose objects no longer compress well.
func (p *Packer) judge(g *packGroup, n int, raw []byte) {
	switch {
	case g.size == 0:
		g.size = n + n/8 // the object that became the dictionary compresses to almost nothing, so use the second one
		if n < 64 {
			g.size = 0
		}
		g.worse = 0
	case n > g.size+g.size/2:
		if g.worse++; g.worse >= groupMin {
			p.renew(g, raw)
		}
	default:
		g.worse = 0
	}
}

func (p *Packer) renew(g *packGroup, raw []byte) {
	g.dict, g.size, g.worse = p.newDict(raw), 0, 0
	if g.dict != nil {
		g.dict.group = g
	}
}

// newDict makes a dictionary from a copy of data.
func (p *Packer) newDict(data []byte) *dict {
	own := append(make([]byte, 0, len(data)+16), data...)
	d := &dict{data: own, s2: s2.MakeDict(own, nil)}
	if d.s2 == nil {
		return nil
	}
	p.arena.mu.Lock()
	defer p.arena.mu.Unlock()
	if n := len(p.freeID); n > 0 {
		d.id = p.freeID[n-1]
		p.freeID = p.freeID[:n-1]
		p.dicts[d.id-1] = d
		return d
	}
	p.dicts = append(p.dicts, d)
	d.id = uint32(len(p.dicts))
	return d
}

// encoder returns a copy of the dictionary with tables for encoding, which take 32 KB and as long to build as packing
// one object. p.held keeps encoders while there are items to pack. After that the garbage collector may free them.
func (p *Packer) encoder(d *dict) *s2.Dict {
	if e := p.held[d]; e != nil {
		return e
	}
	e := p.encoders[d].Value()
	if e == nil {
		e = s2.MakeDict(d.data, nil)
		p.encoders[d] = weak.Make(e)
	}
	if len(p.held) == maxEncoders {
		clear(p.held)
	}
	p.held[d] = e
	return e
}
