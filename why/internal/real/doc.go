// Package real asks why objects do not move, of programs that are stuck on a real control plane. It has tests only.
package real
