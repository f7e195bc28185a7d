//go:build race

package program

// race tells whether the race detector is on in this process.
const race = true
