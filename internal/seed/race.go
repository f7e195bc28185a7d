//go:build race

package seed

// Race reports whether the tests run with the race detector, which makes them several times slower.
const Race = true
