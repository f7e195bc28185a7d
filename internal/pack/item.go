package pack

import (
	"slices"
	"sync/atomic"

	"github.com/klauspost/compress/s2"
)

// Item is one encoded object, on the heap or, once packed, in the arena. Its owner embeds it, must not copy it, and
// uses it with one Packer. The zero value is empty.
type Item struct {
	heap atomic.Pointer[loose]
	at   atomic.Uint64 // slotRef; 0: on the heap; retired: on the heap and never packed. Changed under arena.mu
}

// retired marks an item that is never packed again.
const retired = ^uint64(0)

// loose is an encoded object on the heap.
type loose struct {
	data   []byte
	packed bool  // whether data is compressed
	dict   *dict // its dictionary; nil: none
}

// Set sets the bytes of a new item. The caller must not modify data afterwards.
func (it *Item) Set(data []byte) { it.heap.Store(&loose{data: data}) }

// Retired reports whether the item was superseded.
func (it *Item) Retired() bool { return it.at.Load() == retired }

// Append appends the bytes of an item to dst. With a nil dst it may return shared bytes, which must not be modified. An
// error means that memory is corrupt.
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

// Retire moves a superseded item back to the heap. The garbage collector frees it after its last reference.
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

// Read returns the bytes of an item, which must not be modified. They are either shared, or in buf, which grows as
// needed, and then valid until the next use of buf.
func (p *Packer) Read(it *Item, buf *[]byte) ([]byte, error) {
	if h := it.heap.Load(); h != nil && !h.packed {
		return h.data, nil
	}
	if *buf == nil {
		*buf = []byte{} // with nil, Append may return bytes that other readers share
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
