//go:build !unix

package pack

// mapMemory returns zeroed memory; on this system it is of the Go heap.
func mapMemory(n int) ([]byte, error) { return make([]byte, n), nil }

func unmap([]byte) {}
