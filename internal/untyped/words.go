package untyped

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/fairlead-io/fairlead/internal/piece"
)

// words remembers short strings. It is a table of fixed size without chains: a frequent string stays or soon returns.
type words struct {
	once sync.Once
	*tables
}

type tables struct {
	seed   maphash.Seed
	names  [1024]atomic.Pointer[word]
	values [2048]place
}

// word is a string and the same string as an interface value, which would otherwise cost an allocation.
type word struct {
	text  string
	value any
}

// place holds a value that was decoded twice in a row. Most values that occur once never occur again.
type place struct {
	word atomic.Pointer[word]
	last atomic.Uint64 // hash of the last string that was not the word
}

// maxWord is the maximum length of a remembered string in bytes.
const maxWord = 64

func (w *words) hash(b []byte) uint64 {
	w.once.Do(func() { w.tables = &tables{seed: maphash.MakeSeed()} })
	return maphash.Bytes(w.seed, b)
}

// name returns the name of a member. left estimates the bytes of strings still to come.
func (w *words) name(b []byte, p *piece.Of, left int) string {
	if len(b) > maxWord {
		return p.Text(b, left)
	}
	h := w.hash(b)
	at := &w.names[h%uint64(len(w.names))]
	if known := at.Load(); known != nil && known.text == string(b) {
		return known.text
	}
	text := string(b)
	at.Store(&word{text: text})
	return text
}

// value returns a string as an interface value.
func (w *words) value(b []byte, p *piece.Of, left int) any {
	if len(b) > maxWord {
		return p.Text(b, left)
	}
	h := w.hash(b)
	at := &w.values[h%uint64(len(w.values))]
	if known := at.word.Load(); known != nil && known.text == string(b) {
		return known.value
	}
	if at.last.Swap(h) != h {
		return p.Text(b, left)
	}
	text := string(b)
	known := &word{text, text}
	at.word.Store(known)
	return known.value
}
