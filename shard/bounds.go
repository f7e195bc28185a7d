package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sort"
	"unique"
)

// boundaries are where the slots of a layout begin. They are interned, so that layouts are small and comparable. The
// zero value means equal ranges.
type boundaries struct{ data unique.Handle[boundaryData] }

// boundaryData is the content of boundaries. starts has eight bytes for each slot, big-endian, since a comparable type
// cannot contain a slice.
type boundaryData struct {
	version int64
	starts  string
}

func (b boundaries) areEqualRanges() bool { return b == boundaries{} }

// WithStarts returns the layout with other boundaries: slot i begins at hash starts[i] and ends before starts[i+1], or
// at 2^64. A slot may be empty. The version is greater than 0, and greater than those of earlier boundaries of the same
// group. The error says why starts are no boundaries.
func (l Layout) WithStarts(version int64, starts []uint64) (Layout, error) {
	refuse := func(err error) (Layout, error) {
		return Layout{}, fmt.Errorf("cannot divide objects by these boundaries: %w", err)
	}
	switch {
	case l.Check() != nil:
		return refuse(l.Check())
	case version < 1:
		return refuse(fmt.Errorf("their version is %d: want at least 1", version))
	case len(starts) != l.Len():
		return refuse(fmt.Errorf("%d starts of %d slots", len(starts), l.Len()))
	case starts[0] != 0:
		return refuse(errors.New("slot 0 does not begin at hash 0"))
	}
	text := make([]byte, 0, 8*len(starts))
	for i, start := range starts {
		if i > 0 && start < starts[i-1] {
			return refuse(fmt.Errorf("slot %d begins before slot %d", i, i-1))
		}
		text = binary.BigEndian.AppendUint64(text, start)
	}
	l = l.normal()
	l.bounds = boundaries{unique.Make(boundaryData{version, string(text)})}
	return l, nil
}

// Version returns the version of the boundaries; 0 for equal ranges.
func (l Layout) Version() int64 {
	if l.bounds.areEqualRanges() {
		return 0
	}
	return l.bounds.data.Value().version
}

// Starts returns the hash at which each slot begins.
func (l Layout) Starts() []uint64 {
	starts := make([]uint64, l.Len())
	for slot := range starts {
		starts[slot] = l.start(slot)
	}
	return starts
}

// start returns the hash at which a slot begins.
func (l Layout) start(slot int) uint64 {
	if l.bounds.areEqualRanges() {
		return uint64(slot) << l.shift()
	}
	return startIn(l.bounds.data.Value().starts, slot)
}

func startIn(starts string, slot int) (h uint64) {
	for _, b := range []byte(starts[8*slot : 8*slot+8]) {
		h = h<<8 | uint64(b)
	}
	return h
}

// last returns the last hash of a slot. It is less than its start if the slot is empty.
func (l Layout) last(slot int) uint64 {
	if slot == l.Len()-1 {
		return 1<<64 - 1
	}
	return l.start(slot+1) - 1
}

// SlotOfHash returns the slot that contains a hash; see [Hash].
func (l Layout) SlotOfHash(h uint64) int {
	if l.bounds.areEqualRanges() {
		return int(h >> l.shift())
	}
	starts := l.bounds.data.Value().starts
	return sort.Search(l.Len(), func(slot int) bool { return startIn(starts, slot) > h }) - 1
}

// shift returns by how many bits a hash is longer than a slot number. It is 64 for one slot, so every hash becomes 0.
func (l Layout) shift() int { return 64 - bits.TrailingZeros(uint(l.Len())) }

// In returns those slots of the set that have the same range in l, as a set of l. l must have the same By and Slots.
func (s Set) In(l Layout) Set {
	l = l.normal()
	if s.Layout() == l {
		s.layout = l
		return s
	}
	in := Set{layout: l}
	for slot := range s.Slots() {
		if s.layout.start(slot) == l.start(slot) && s.layout.last(slot) == l.last(slot) {
			in.words[slot/64] |= 1 << (slot % 64)
		}
	}
	return in
}
