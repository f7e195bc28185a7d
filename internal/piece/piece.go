// Package piece makes strings that share memory: there are fewer pieces for the allocator and the garbage collector,
// and a string that outlives the others holds no more than a piece of them.
package piece

import "unsafe"

const (
	size  = 512
	large = 128 // larger strings have memory of their own
)

// Of is memory for strings. The zero value is ready; it is for one goroutine at a time.
type Of struct{ free []byte }

// Text returns b as a string. Left says about how many bytes of strings are still to come, so that the last piece is no
// larger.
func (p *Of) Text(b []byte, left int) string {
	n := len(b)
	switch {
	case n == 0:
		return ""
	case n > large:
		return string(b)
	case n > len(p.free):
		p.free = make([]byte, max(n, min(left, size)))
	}
	copy(p.free, b)
	s := unsafe.String(unsafe.SliceData(p.free), n)
	p.free = p.free[n:]
	return s
}
