package pack

import (
	"encoding/binary"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
)

// dict is a dictionary. It keeps only the bytes; the encoders own the tables for encoding.
type dict struct {
	data []byte // shared by all its encoders
	s2   *s2.Dict

	// Owned by packedItems.
	number uint32 // from 1; slots refer to a dictionary by its number
	users  int    // slots compressed with it, and one until the dictionary is released
}

// The first bytes of a slot are a number that says how to decode the rest.
const (
	formPlain  = 0 // not compressed
	formNoDict = 1 // compressed without a dictionary; with one, the number of the dictionary is added
)

// packedItems keeps items in slots outside the Go heap, and the dictionaries that the slots need. Writers hold the lock
// at most while they copy a slot. Readers share it while they decode one.
type packedItems struct {
	mu    sync.RWMutex
	arena *arena
	dicts []*dict  // by number-1; nil: the number is free
	free  []uint32 // free numbers
}

// register gives a dictionary a number. The dictionary stays registered until it is released and no slot needs it.
func (s *packedItems) register(d *dict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.users = 1
	if n := len(s.free); n > 0 {
		d.number = s.free[n-1]
		s.free = s.free[:n-1]
		s.dicts[d.number-1] = d
		return
	}
	s.dicts = append(s.dicts, d)
	d.number = uint32(len(s.dicts))
}

// release says that no further item will be packed with a dictionary.
func (s *packedItems) release(d *dict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unrefLocked(d)
}

// unrefLocked drops one user of a dictionary, and frees its number after the last one.
func (s *packedItems) unrefLocked(d *dict) {
	if d.users--; d.users == 0 {
		s.dicts[d.number-1] = nil
		s.free = append(s.free, d.number)
	}
}

// put moves an item into a slot, unless it was superseded in the meantime. packed is its compressed form, made with d,
// which may be nil. If packed is nil, the slot gets the bytes of h. An item that gets no slot stays on the heap in its
// compressed form.
func (s *packedItems) put(it *Item, h *loose, packed []byte, d *dict) {
	data, form := packed, uint64(formNoDict)
	switch {
	case packed == nil:
		data, form = h.data, formPlain
	case d != nil:
		form = formNoDict + uint64(d.number)
	}
	var head [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(head[:], form)
	s.mu.Lock()
	defer s.mu.Unlock()
	if it.Retired() {
		return
	}
	ref, ok := s.arena.put(head[:n], data)
	if !ok {
		if packed != nil {
			it.moveToHeap(&loose{data: slices.Clone(packed), packed: true, dict: d})
		}
		return
	}
	if d != nil {
		d.users++
	}
	it.moveToSlot(ref)
}

// contentLocked returns the content of a slot. Its data is valid only while the lock is held.
func (s *packedItems) contentLocked(ref slotRef) loose {
	b := s.arena.data(ref)
	form, n := binary.Uvarint(b)
	l := loose{data: b[n:], packed: form != formPlain}
	if form > formNoDict {
		l.dict = s.dicts[form-formNoDict-1]
	}
	return l
}

// append appends the bytes of an item, in a slot or on the heap, to dst. With a nil dst it may return shared bytes.
func (s *packedItems) append(dst []byte, it *Item) ([]byte, error) {
	for {
		if h := it.onHeap(); h != nil {
			return h.unpack(dst)
		}
		s.mu.RLock()
		ref := it.slot()
		if ref == 0 { // moved to the heap in between
			s.mu.RUnlock()
			continue
		}
		l := s.contentLocked(ref)
		if !l.packed {
			dst = append(dst, l.data...)
			s.mu.RUnlock()
			return dst, nil
		}
		out, err := l.unpack(dst)
		s.mu.RUnlock()
		return out, err
	}
}

// retire moves an item to the heap and frees its slot. It is never put into a slot again.
func (s *packedItems) retire(it *Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ref := it.slot()
	if ref == 0 {
		it.retire()
		return
	}
	l := s.contentLocked(ref)
	l.data = slices.Clone(l.data)
	it.moveToHeap(&l)
	it.retire()
	s.arena.free(ref)
	if l.dict != nil {
		s.unrefLocked(l.dict)
	}
}

// relocate moves an item out of a sparse block. The arena releases a block when it is empty.
func (s *packedItems) relocate(it *Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ref := it.slot()
	if ref == 0 || !s.arena.sparse(ref) {
		return
	}
	if to, ok := s.arena.move(ref); ok {
		it.moveToSlot(to)
	}
}

// usage returns the bytes of slots in use, the bytes of the arena and the number of dictionaries.
func (s *packedItems) usage() (live, mapped int64, dictionaries int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.arena.live, s.arena.mapped, len(s.dicts) - len(s.free)
}
