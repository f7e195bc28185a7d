//go:build !unix

package pack

// mapMemory returns zeroed memory. On this system it is part of the Go heap.
func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmap([]byte) {}
