// Package piece makes strings that share memory. This means fewer allocations and less work for the garbage collector.
// A string that outlives the others retains at most one piece of shared memory.
package piece

import "unsafe"

const (
	size  = 512
	large = 128 // larger strings have their own memory
)

// Of is memory for strings. The zero value is ready to use. It is not safe for concurrent use.
type Of struct{ free []byte }

// Text returns b as a string. left estimates the bytes of strings still to come, so that the last piece is not too
// large.
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
