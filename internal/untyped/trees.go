package untyped

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
)

// Objects of a kind have whole parts in common, too: the tolerations, probes and managed fields of the pods of one
// workload. Where nobody may change what was decoded they are remembered, and shared like words.

// trees remembers small objects and lists that have come twice in a row at their place. The table grows with what
// comes, up to a limit.
type trees struct {
	seed   maphash.Seed
	once   sync.Once
	places atomic.Pointer[[]treePlace]
	missed atomic.Int64 // how often, in this table
	spans  sync.Pool    // *[]span
}

type treePlace struct {
	tree atomic.Pointer[tree]
	last atomic.Uint64 // hash of what came last and was not the tree
}

// tree is an object or a list, and the text that it was decoded from.
type tree struct {
	text  string
	value any
}

const (
	maxTree   = 256 // bytes: what is larger is not remembered as a whole, but its parts are
	minPlaces = 512
	maxPlaces = 16 << 10
	growAfter = 4 // misses for each place
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

// miss counts what was not found, and makes a larger table when it is worth it.
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
	if t.places.CompareAndSwap(old, &places) { // what others remember meanwhile in the old one is forgotten
		t.missed.Store(0)
	}
}

// span is an object or a list of a text.
type span struct {
	end   int32 // behind its bracket
	next  int32 // the span that begins after it
	items int32 // no fewer than it has
}

// survey finds the objects and lists of data, in the order in which they begin; nil if their brackets do not match in
// number. It looks at brackets, commas and quotes only.
func survey(spans []span, data []byte) []span {
	if len(data) > math.MaxInt32 {
		return nil
	}
	open := int32(-1) // the innermost; while one is open, its next is the one around it
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

// sharing is what a decoding needs whose result nobody may change. The zero value shares nothing.
type sharing struct {
	trees  *trees
	places []treePlace
	spans  []span
	span   int // the next one
	missed int
	buf    *[]span
}

// begin has what is decoded from data share trees. It is told of the end.
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

// end gives back what is not needed any more.
func (s *sharing) end() {
	if s.spans == nil {
		return
	}
	s.trees.miss(s.missed)
	s.trees.spans.Put(s.buf)
}

// known returns the object or list at d.at, if it was seen before. If not, it says where it is to be remembered with
// its text, if it is, and how many items it has.
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
