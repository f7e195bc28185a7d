package untyped

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
)

// Objects of a kind share whole parts, such as the tolerations, probes and managed fields of the pods of one workload.
// The functions whose results must not be modified remember such parts and share them.

// trees remembers small objects and lists that were decoded twice in a row at their place in the table. The table grows
// with the number of misses, up to maxPlaces.
type trees struct {
	seed   maphash.Seed
	once   sync.Once
	places atomic.Pointer[[]treePlace]
	missed atomic.Int64 // misses in this table
	spans  sync.Pool    // *[]span
}

type treePlace struct {
	tree atomic.Pointer[tree]
	last atomic.Uint64 // hash of the last text that was not the tree
}

// tree is an object or a list and the text that it was decoded from.
type tree struct {
	text  string
	value any
}

const (
	maxTree   = 256 // bytes; larger ones are not remembered, but their parts are
	minPlaces = 512
	maxPlaces = 16 << 10
	growAfter = 4 // misses per place
)

func (t *trees) hash(text []byte) uint64 { return maphash.Bytes(t.seed, text) }

func (t *trees) table() []treePlace {
	t.once.Do(func() {
		t.seed = maphash.MakeSeed()
		places := make([]treePlace, minPlaces)
		t.places.Store(&places)
	})
	return *t.places.Load()
}

// miss counts misses and doubles the table when there are many.
func (t *trees) miss(n int) {
	old := t.places.Load()
	size := len(*old)
	if t.missed.Add(int64(n)) < int64(growAfter*size) || size == maxPlaces {
		return
	}
	places := make([]treePlace, 2*size)
	for i := range *old {
		if known := (*old)[i].tree.Load(); known != nil {
			places[t.hash([]byte(known.text))%uint64(len(places))].tree.Store(known)
		}
	}
	if t.places.CompareAndSwap(old, &places) { // entries added to the old table in the meantime are lost
		t.missed.Store(0)
	}
}

// span is the range of an object or a list in a text.
type span struct {
	end   int32 // index after its closing bracket
	next  int32 // index of the first span after it
	items int32 // upper bound of its items
}

// survey returns the objects and lists of data, ordered by their beginning. It returns nil if the number of brackets
// does not match. It checks only brackets, commas and quotes.
func survey(spans []span, data []byte) []span {
	if len(data) > math.MaxInt32 {
		return nil
	}
	open := int32(-1) // the innermost open span; next of an open span is its parent
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			n := quoted(data[i:])
			if n == 0 {
				return nil
			}
			i += n - 1
		case '{', '[':
			spans = append(spans, span{next: open, items: 1})
			open = int32(len(spans) - 1)
		case ',':
			if open >= 0 {
				spans[open].items++
			}
		case '}', ']':
			if open < 0 {
				return nil
			}
			s := &spans[open]
			open, s.end, s.next = s.next, int32(i+1), int32(len(spans))
		}
	}
	if open >= 0 {
		return nil
	}
	return spans
}

// sharing is the state of a decoding with a shared result. The zero value shares nothing.
type sharing struct {
	trees  *trees
	places []treePlace
	spans  []span
	span   int // index of the next span
	missed int
	buf    *[]span
}

// begin enables sharing for a value decoded from data. The caller must call end.
func (s *sharing) begin(t *trees, data []byte) {
	buf, _ := t.spans.Get().(*[]span)
	if buf == nil {
		buf = new([]span)
	}
	if spans := survey((*buf)[:0], data); spans != nil {
		*buf = spans
		*s = sharing{trees: t, places: t.table(), spans: spans, buf: buf}
	}
}

// end releases the buffers.
func (s *sharing) end() {
	if s.spans == nil {
		return
	}
	s.trees.miss(s.missed)
	s.trees.spans.Put(s.buf)
}

// known returns the object or list at d.at if it is remembered. Otherwise it returns the place to remember it, if any,
// its text, and an upper bound of its items.
func (d *decoding) known() (v any, at *treePlace, text []byte, items int) {
	s := &d.sharing
	if s.spans == nil {
		return nil, nil, nil, 0
	}
	found := s.spans[s.span]
	s.span++
	if text = d.data[d.at:found.end]; len(text) > maxTree {
		return nil, nil, nil, int(found.items)
	}
	h := s.trees.hash(text)
	place := &s.places[h%uint64(len(s.places))]
	if t := place.tree.Load(); t != nil && t.text == string(text) {
		d.at, s.span = int(found.end), int(found.next)
		return t.value, nil, nil, 0
	}
	s.missed++
	if place.last.Swap(h) == h {
		at = place
	}
	return nil, at, text, int(found.items)
}
