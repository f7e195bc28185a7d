package pack

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"slices"
)

// arena keeps bytes outside the Go heap, where they cost no garbage collection. All slots of a block have the same
// size. A block without a live slot is unmapped. packedItems owns the arena and guards it with its lock.
type arena struct {
	blocks  []*block // by number; nil: free for reuse
	unused  []uint32 // free block numbers
	partial [classes][]uint32
	live    int64 // bytes of slots in use
	mapped  int64 // bytes of slots that were used at least once; approximates the resident memory
	memory  *mappings
}

// mappings lists the blocks to unmap when the arena is collected. It must not refer to the arena.
type mappings struct{ blocks map[*block]struct{} }

const (
	blockSize = 256 << 10
	maxSlot   = 32 << 10 // larger objects stay on the heap
	classes   = 40
	slotStart = 4 // bytes of the length before the data of a slot
)

// block is one mapping, divided into slots. A free slot holds the number of the next free one.
type block struct {
	mem   []byte
	class int
	free  uint16 // 1 + the first free slot
	fresh uint16 // slots from here on have never been used
	live  uint16
	open  bool // the block is in arena.partial
}

// slotRef identifies a slot: 1 + the block number, then the slot number in the low 16 bits; 0: none.
type slotRef uint64

func newArena() *arena {
	a := &arena{memory: &mappings{blocks: map[*block]struct{}{}}}
	runtime.AddCleanup(a, func(m *mappings) {
		for b := range m.blocks {
			unmap(b.mem)
		}
	}, a.memory)
	return a
}

// classOf returns the smallest class whose slots hold n bytes. There are four classes for each power of two, from 64
// bytes up.
func classOf(n int) int {
	if n <= 64 {
		return 0
	}
	exp := bits.Len(uint(n-1)) - 1 // 2^exp < n <= 2^(exp+1)
	step := 1 << (exp - 2)
	return (exp-6)*4 + (n-1-1<<exp)/step + 1
}

func slotSize(class int) int {
	if class == 0 {
		return 64
	}
	exp, part := 6+(class-1)/4, (class-1)%4+1
	return 1<<exp + part<<(exp-2)
}

// put copies head and data into a slot. It returns false if they are too large or no memory can be mapped.
func (a *arena) put(head, data []byte) (ref slotRef, ok bool) {
	size := len(head) + len(data)
	if size > maxSlot-slotStart {
		return 0, false
	}
	class := classOf(size + slotStart)
	list := a.partial[class]
	if len(list) == 0 {
		no, ok := a.grow(class)
		if !ok {
			return 0, false
		}
		list = append(list, no)
		a.partial[class] = list
	}
	no := list[len(list)-1]
	b := a.blocks[no]
	step := slotSize(class)
	var slot uint16
	if b.free != 0 {
		slot = b.free - 1
		b.free = binary.LittleEndian.Uint16(b.mem[int(slot)*step:])
	} else {
		slot = b.fresh
		b.fresh++
		a.mapped += int64(step)
	}
	b.live++
	a.live += int64(step)
	if b.free == 0 && int(b.fresh) == len(b.mem)/step {
		a.partial[class], b.open = list[:len(list)-1], false
	}
	to := b.mem[int(slot)*step:]
	binary.LittleEndian.PutUint32(to, uint32(size))
	to = to[slotStart:]
	copy(to[copy(to, head):], data)
	return slotRef(no+1)<<16 | slotRef(slot), true
}

func (a *arena) grow(class int) (no uint32, ok bool) {
	mem, err := mapMemory(blockSize)
	if err != nil {
		return 0, false // the object stays on the heap
	}
	b := &block{mem: mem, class: class, open: true}
	a.memory.blocks[b] = struct{}{}
	if n := len(a.unused); n > 0 {
		no = a.unused[n-1]
		a.unused = a.unused[:n-1]
		a.blocks[no] = b
		return no, true
	}
	a.blocks = append(a.blocks, b)
	return uint32(len(a.blocks) - 1), true
}

// move moves the bytes of a slot into another block, preferably one that is not sparse, and frees the slot. It returns
// false, and moves nothing, if no memory can be mapped.
func (a *arena) move(ref slotRef) (to slotRef, ok bool) {
	no := uint32(ref>>16 - 1)
	class := a.blocks[no].class
	a.close(no)
	for list := a.partial[class]; len(list) > 0 && a.sparse(slotRef(list[len(list)-1]+1)<<16); list = a.partial[class] {
		a.close(list[len(list)-1]) // compaction empties this block, too
	}
	if to, ok = a.put(nil, a.data(ref)); ok {
		a.free(ref)
	}
	return to, ok
}

// close removes a block from the list of blocks that put fills.
func (a *arena) close(no uint32) {
	b := a.blocks[no]
	if !b.open {
		return
	}
	b.open = false
	list := a.partial[b.class]
	if i := slices.Index(list, no); i >= 0 {
		a.partial[b.class] = slices.Delete(list, i, i+1)
	}
}

// data returns the bytes of a slot, which are valid only while the lock of the owner is held.
func (a *arena) data(ref slotRef) []byte {
	b := a.blocks[ref>>16-1]
	at := int(ref&0xffff) * slotSize(b.class)
	n := int(binary.LittleEndian.Uint32(b.mem[at:]))
	return b.mem[at+slotStart : at+slotStart+n]
}

// free releases a slot.
func (a *arena) free(ref slotRef) {
	no, slot := uint32(ref>>16-1), uint16(ref)
	b := a.blocks[no]
	size := slotSize(b.class)
	binary.LittleEndian.PutUint16(b.mem[int(slot)*size:], b.free)
	b.free = slot + 1
	b.live--
	a.live -= int64(size)
	if b.live == 0 {
		a.drop(no, b)
		return
	}
	if !b.open {
		b.open = true
		a.partial[b.class] = append(a.partial[b.class], no)
	}
}

func (a *arena) drop(no uint32, b *block) {
	a.mapped -= int64(b.fresh) * int64(slotSize(b.class))
	a.close(no)
	delete(a.memory.blocks, b)
	a.blocks[no] = nil
	a.unused = append(a.unused, no)
	unmap(b.mem)
}

// sparse reports whether the block of a slot is less than half full and put is not filling it.
func (a *arena) sparse(ref slotRef) bool {
	b := a.blocks[ref>>16-1]
	return int(b.live)*2 < int(b.fresh) && int(b.fresh)*2 > len(b.mem)/slotSize(b.class)
}
