//go:build race

package program

// race reports whether the race detector is on in this process.
const race = true
