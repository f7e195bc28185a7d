// Package seed chooses what random tests play.
package seed

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Play calls play, in a subtest of that name, for n seeds that nobody has played yet; FAIRLEAD_SEEDS=m has it play m of
// them, and FAIRLEAD_SEED=s plays that one again, as the name of a test that has failed says.
func Play(t *testing.T, n int, play func(t *testing.T, seed uint64)) {
	t.Helper()
	for _, s := range choose(t, n) {
		t.Run(fmt.Sprint("FAIRLEAD_SEED=", s), func(t *testing.T) { play(t, s) })
	}
}

// Rand returns what a part of a test that plays a seed chooses by: the same for the same seed and parts, which tell it
// from other parts, whatever else runs beside it.
func Rand(seed uint64, parts ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, parts...) // a hash takes everything
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func choose(t *testing.T, n int) []uint64 {
	t.Helper()
	if one, ok := number(t, "FAIRLEAD_SEED"); ok {
		return []uint64{one}
	}
	if many, ok := number(t, "FAIRLEAD_SEEDS"); ok {
		n = int(min(many, math.MaxInt32))
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = rand.Uint64()
	}
	return seeds
}

func number(t *testing.T, name string) (n uint64, ok bool) {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("cannot read %s: %v", name, err)
	}
	return n, true
}
