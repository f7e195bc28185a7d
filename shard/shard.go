package shard

import (
	"fmt"
	"iter"
	"math/bits"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// By is the field of an object that determines its slot.
type By uint8

// The fields that can determine the slot.
const (
	Namespace By = iota
	UID
)

// String returns "namespace" or "uid".
func (b By) String() string {
	if b == UID {
		return "uid"
	}
	return "namespace"
}

// ParseBy is the inverse of By.String.
func ParseBy(s string) (By, error) {
	for _, b := range []By{Namespace, UID} {
		if s == b.String() {
			return b, nil
		}
	}
	return 0, fmt.Errorf("cannot shard by %q: want namespace or uid", s)
}

// Numbers of slots.
const (
	DefaultSlots = 64
	MaxSlots     = 1024
)

// Layout describes how objects are divided into slots. Replicas that share objects must have the same By and Slots. The
// zero value has 64 slots by namespace, of equal ranges; see [Layout.WithStarts] for others. Layouts are immutable, and
// comparable with == if Slots is not 0.
type Layout struct {
	By    By
	Slots int // a power of two, at most MaxSlots; 0 means DefaultSlots

	bounds boundaries // the zero value: equal ranges
}

// Check returns an error if the layout is invalid.
func (l Layout) Check() error {
	if n := l.Len(); n < 1 || n > MaxSlots || n&(n-1) != 0 {
		return fmt.Errorf("cannot divide objects into %d slots: want a power of two of at most %d", n, MaxSlots)
	}
	if l.By > UID {
		return fmt.Errorf("cannot divide objects by field %d: want shard.Namespace or shard.UID", l.By)
	}
	return nil
}

// Len returns the number of slots.
func (l Layout) Len() int {
	if l.Slots == 0 {
		return DefaultSlots
	}
	return l.Slots
}

// normal returns the layout with an explicit number of slots, so that equal layouts are ==.
func (l Layout) normal() Layout {
	l.Slots = l.Len()
	return l
}

// SlotOf returns the slot of an object.
func (l Layout) SlotOf(namespace string, uid types.UID) int {
	if l.By == UID {
		return l.SlotOfHash(hash(string(uid)))
	}
	return l.SlotOfHash(hash(namespace))
}

// Hash returns the hash of a namespace or a uid that determines its slot. It is FNV-1a, 64 bits.
func Hash(field string) uint64 { return hash(field) }

// hash is FNV-1a, which API servers compute of the same fields.
func hash[T string | []byte](s T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// Membership selects the objects that this process works on if replicas share the objects. A *group.Group implements
// it.
type Membership interface {
	// Layout returns how objects are divided into slots, with the newest known boundaries.
	Layout() Layout
	// FenceOf is Fence for the slot of an object.
	FenceOf(namespace string, uid types.UID) error
	// Fence returns an error if no request may be sent for a slot. It returns nil only while it is certain that no other
	// replica holds the slot. It must be quick and safe for concurrent use.
	Fence(slot int) error
}

// Set is a set of slots of one layout. Sets are immutable and comparable with ==. The zero Set is empty and has the
// default layout; see [Layout.Set].
//
// Methods with two sets need layouts with the same By and Slots. If the boundaries differ, each slot of the sets must
// have the same range in both layouts. That is so for slots that a replica holds: package shard/group changes the
// boundaries only of slots without a holder. [Set.In] gives such a set.
type Set struct {
	layout Layout
	words  [MaxSlots / 64]uint64
}

// Set returns the set of the given slots. It panics if the layout does not have a slot.
func (l Layout) Set(slots ...int) Set {
	s := Set{layout: l.normal()}
	for _, slot := range slots {
		if slot < 0 || slot >= l.Len() {
			panic(fmt.Sprintf("cannot make a set with slot %d of %d", slot, l.Len()))
		}
		s.words[slot/64] |= 1 << (slot % 64)
	}
	return s
}

// All returns the set of all slots.
func (l Layout) All() Set {
	s := Set{layout: l.normal()}
	for slot := range l.Len() {
		s.words[slot/64] |= 1 << (slot % 64)
	}
	return s
}

// Layout returns the layout of the set.
func (s Set) Layout() Layout { return s.layout.normal() }

// Holds reports whether a slot is in the set.
func (s Set) Holds(slot int) bool {
	return slot >= 0 && slot < MaxSlots && s.words[slot/64]&(1<<(slot%64)) != 0
}

// Has reports whether the slot of an object is in the set.
func (s Set) Has(namespace string, uid types.UID) bool {
	return s.Holds(s.layout.SlotOf(namespace, uid))
}

// HasBytes is [Set.Has] for byte slices.
func (s Set) HasBytes(namespace, uid []byte) bool {
	field := namespace
	if s.layout.By == UID {
		field = uid
	}
	return s.Holds(s.layout.SlotOfHash(hash(field)))
}

// Len returns the number of slots in the set.
func (s Set) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// IsEmpty reports whether the set has no slots.
func (s Set) IsEmpty() bool { return s.words == [len(s.words)]uint64{} }

// IsAll reports whether the set has all slots of its layout.
func (s Set) IsAll() bool { return s.Len() == s.layout.Len() }

// Slots returns the slots of the set in ascending order.
func (s Set) Slots() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// Union returns the slots of either set, in the newer layout of the two. The layout of an empty set does not count.
func (s Set) Union(o Set) Set {
	if !o.IsEmpty() && (s.IsEmpty() || s.layout.Version() < o.layout.Version()) {
		s.layout = o.layout
	}
	for i := range s.words {
		s.words[i] |= o.words[i]
	}
	return s
}

// Minus returns the slots of s that are not in o, in the layout of s.
func (s Set) Minus(o Set) Set {
	for i := range s.words {
		s.words[i] &^= o.words[i]
	}
	return s
}

// Both returns the slots that are in both sets, in the layout of s.
func (s Set) Both(o Set) Set {
	for i := range s.words {
		s.words[i] &= o.words[i]
	}
	return s
}

// runs returns the maximal runs of consecutive slots: the first slot, and the end, which is excluded.
func (s Set) runs() iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		first, end := -1, -1
		for slot := range s.Slots() {
			if slot == end {
				end++
				continue
			}
			if first >= 0 && !yield(first, end) {
				return
			}
			first, end = slot, slot+1
		}
		if first >= 0 {
			yield(first, end)
		}
	}
}

// String returns the slots like "0-15,32", with consecutive slots as a range.
func (s Set) String() string {
	var out strings.Builder
	for first, end := range s.runs() {
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Itoa(first))
		if end > first+1 {
			out.WriteByte('-')
			out.WriteString(strconv.Itoa(end - 1))
		}
	}
	return out.String()
}

// Selector returns the set as the shardSelector of a list or watch (KEP-5866): half-open ranges of the hash. It is
// empty for a set of all slots, which needs no selector. An empty set has no selector, and Selector must not be used
// for it. The selector of slots without any hash matches one hash, since no selector matches none.
func (s Set) Selector() string {
	if s.IsAll() {
		return ""
	}
	field := "object.metadata." + s.layout.By.String()
	var out strings.Builder
	add := func(start, end string) {
		if out.Len() > 0 {
			out.WriteString(" || ")
		}
		fmt.Fprintf(&out, "shardRange(%s, '%s', '%s')", field, start, end)
	}
	for first, end := range s.runs() {
		if from, to := s.bound(first), s.bound(end); from != to {
			add(from, to)
		}
	}
	if out.Len() == 0 {
		add(bound(0), bound(1))
	}
	return out.String()
}

// bound returns the hash at which a slot begins, in the format of API servers. The end of the last slot has one more
// digit.
func (s Set) bound(slot int) string {
	if slot == s.layout.Len() {
		return "0x10000000000000000"
	}
	return bound(s.layout.start(slot))
}

func bound(h uint64) string { return fmt.Sprintf("0x%016x", h) }
