//go:build unix

package pack

import "golang.org/x/sys/unix"

// mapMemory returns zeroed memory outside the Go heap.
func mapMemory(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func unmap(mem []byte) { _ = unix.Munmap(mem) } // fails only for memory that is not mapped
