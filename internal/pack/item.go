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
	at   atomic.Uint64 // slotRef; 0: on the heap; retired: on the heap and never packed
}

// retired marks an item that is never packed again.
const retired = ^uint64(0)

// Set sets the bytes of a new item. The caller must not modify data afterwards.
func (it *Item) Set(data []byte) { it.heap.Store(&loose{data: data}) }

// Retired reports whether the item was superseded.
func (it *Item) Retired() bool { return it.at.Load() == retired }

// onHeap returns the bytes of an item that has no slot, else nil.
func (it *Item) onHeap() *loose { return it.heap.Load() }

// unpacked returns the bytes of an item that is not packed, else nil.
func (it *Item) unpacked() *loose {
	if h := it.heap.Load(); h != nil && !h.packed {
		return h
	}
	return nil
}

// slot returns the slot of an item, or 0 if it has none. It does not change while the caller holds packedItems.mu.
func (it *Item) slot() slotRef {
	if at := it.at.Load(); at != retired {
		return slotRef(at)
	}
	return 0
}

// The following methods change the place of an item. The caller holds packedItems.mu.

func (it *Item) moveToSlot(ref slotRef) {
	it.at.Store(uint64(ref)) // first, since readers look at the heap before
	it.heap.Store(nil)
}

func (it *Item) moveToHeap(l *loose) { it.heap.Store(l) }

func (it *Item) retire() { it.at.Store(retired) }

// loose is an encoded object on the heap, or the content of a slot.
type loose struct {
	data   []byte
	packed bool  // whether data is compressed
	dict   *dict // its dictionary; nil: none
}

// unpack appends the bytes of the object to dst. With a nil dst it may return shared bytes.
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
