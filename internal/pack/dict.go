package pack

import (
	"weak"

	"github.com/klauspost/compress/s2"
)

// dict is a dictionary. Only its bytes are kept; the tables for encoding belong to the encoders.
type dict struct {
	id    uint32
	data  []byte // shared by all of its encoders
	s2    *s2.Dict
	refs  int // slots of the arena that need it; guarded by arena.mu
	group *packGroup
}

// packGroup is what siblings share; only the packer uses it.
type packGroup struct {
	seen  int   // objects packed
	dict  *dict // nil until there are enough
	size  int   // of what the dictionary first gave, for comparison
	worse int   // objects in a row for which it did not do
}

// learn adds an object to the sample for the common dictionary.
func (p *Packer) learn(group uint64, raw []byte) {
	if p.taken[group] < sampleGroups && len(p.sample)+len(raw) <= sampleBytes {
		p.taken[group]++
		p.sample = append(p.sample, raw...)
	}
}

// judge renews the dictionary of a group that has changed too much.
func (p *Packer) judge(g *packGroup, n int, raw []byte) {
	switch {
	case g.size == 0:
		g.size = n + n/8 // the dictionary itself gives next to nothing; the second one counts
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

// newDict makes a dictionary of a copy of data.
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

// encoder returns a form of the dictionary that has tables for encoding, of 32 KB each, which take as long to make as
// an object takes to be packed. They are held while there is something to pack, and after that until the garbage
// collector wants them.
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
