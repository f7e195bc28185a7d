package pack

import (
	"slices"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
)

// Item is one encoded object, on the heap or, once it is packed, in the arena. It is a part of what its owner knows
// about the object, stays where it is, and belongs to one Packer. The zero value holds nothing.
type Item struct {
	heap atomic.Pointer[loose]
	at   atomic.Uint64 // slotRef; 0: on the heap; retired: on the heap, to stay there. Changed under arena.mu
}

// retired is the place of an item that is never packed again.
const retired = ^uint64(0)

// loose is an encoded object on the heap.
type loose struct {
	data   []byte
	packed bool  // data is compressed
	dict   *dict // with this; nil: without
}

// Set gives a new item its bytes, which must not be changed afterwards.
func (it *Item) Set(data []byte) { it.heap.Store(&loose{data: data}) }

// Retired says whether the item was superseded.
func (it *Item) Retired() bool { return it.at.Load() == retired }

// Append appends the bytes of an item to dst; without dst it may return shared bytes, which must not be changed. An
// error means that memory is broken.
func (p *Packer) Append(dst []byte, it *Item) ([]byte, error) {
	for {
		if h := it.heap.Load(); h != nil {
			return h.unpack(dst)
		}
		p.arena.mu.RLock()
		at := it.at.Load()
		if at == 0 || at == retired { // moved to the heap in between
			p.arena.mu.RUnlock()
			continue
		}
		l := p.slot(slotRef(at))
		if !l.packed {
			dst = append(dst, l.data...)
			p.arena.mu.RUnlock()
			return dst, nil
		}
		out, err := l.unpack(dst)
		p.arena.mu.RUnlock()
		return out, err
	}
}

// Retire moves an item that was superseded back to the heap, where it goes away with the last one who holds it.
func (p *Packer) Retire(it *Item) {
	p.retire(it)
	p.compactSoon()
}

func (p *Packer) retire(it *Item) {
	a := p.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	at := it.at.Load()
	if at == 0 || at == retired {
		it.at.Store(retired)
		return
	}
	l := p.slot(slotRef(at))
	l.data = slices.Clone(l.data)
	it.heap.Store(&l)
	it.at.Store(retired)
	a.free(slotRef(at))
	if l.dict != nil {
		p.unrefLocked(l.dict)
	}
}

// Read returns the bytes of an item, which must not be changed. They are shared, or in buf, which grows as it has to:
// then they are valid until it is used again.
func (p *Packer) Read(it *Item, buf *[]byte) ([]byte, error) {
	if h := it.heap.Load(); h != nil && !h.packed {
		return h.data, nil
	}
	if *buf == nil {
		*buf = []byte{} // without one, Append may return bytes that others read
	}
	out, err := p.Append((*buf)[:0], it)
	if err == nil {
		*buf = out
	}
	return out, err
}

func (l *loose) unpack(dst []byte) ([]byte, error) {
	if !l.packed {
		if dst == nil {
			return l.data, nil
		}
		return append(dst, l.data...), nil
	}
	n, err := s2.DecodedLen(l.data)
	if err != nil {
		return nil, err
	}
	at := len(dst)
	dst = slices.Grow(dst, n)
	var out []byte
	if l.dict == nil {
		out, err = s2.Decode(dst[at:at+n], l.data)
	} else {
		out, err = l.dict.s2.Decode(dst[at:at+n], l.data)
	}
	if err != nil {
		return nil, err
	}
	return dst[:at+len(out)], nil
}
