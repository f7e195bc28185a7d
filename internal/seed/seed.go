// Package seed chooses the seeds of random tests.
//
// By default a test plays one seed, which is derived from its name, and its recorded seeds. Every run of make test
// therefore repeats the same schedules. These environment variables change that:
//
//	FAIRLEAD_SEED=7          plays only seed 7
//	FAIRLEAD_SEED_BASE=text  plays as many seeds as the test asks for, derived from the text and the test's name
//	FAIRLEAD_SEEDS=300       plays 300 seeds instead of that number
//
// make test-all passes the hash of the commit as the base, so that a second run repeats the first. make soak passes a
// new base each time.
//
// The recorded seeds are in testdata/seeds of the package under test. Each line has the name of a test, a seed that
// has failed, and the fault that it found:
//
//	TestDisturbed 1135242994789238415 # a restart forgot the lock order
package seed

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Play calls play in a subtest for each seed of the test. n is the number of seeds when a base is set, see the
// package comment. A subtest that fails logs the command that repeats it.
func Play(t *testing.T, n int, play func(t *testing.T, seed uint64)) {
	t.Helper()
	for _, s := range choose(t, n) {
		t.Run(fmt.Sprint("FAIRLEAD_SEED=", s), func(t *testing.T) {
			name := strings.TrimSuffix(t.Name(), fmt.Sprint("/FAIRLEAD_SEED=", s))
			logOnFailure(t, name, s)
			play(t, s)
		})
	}
}

// New returns a source of random numbers for a test that does not play several seeds. The seed is FAIRLEAD_SEED, or
// is derived from the base and the test's name. A test that fails logs the command that repeats it.
func New(t testing.TB) *rand.Rand {
	t.Helper()
	s, ok := number(t, "FAIRLEAD_SEED")
	if !ok {
		s = derive(t.Name(), 0)
	}
	logOnFailure(t, t.Name(), s)
	return Rand(s)
}

// Rand returns a source of random numbers for one part of a test. The numbers depend only on the seed and the parts.
func Rand(seed uint64, parts ...any) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintln(h, parts...) // a hash accepts every write
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// Sample returns one element out of every n of a list, in order. The base and the test's name choose the elements, so
// over many commits each element is chosen. A test whose list is too long for make test-all plays a sample.
func Sample[T any](t testing.TB, list []T, n int) (sample []T) {
	t.Helper()
	r := Rand(derive(t.Name(), 0), "sample")
	for at := 0; at < len(list); at += n {
		if i := at + r.IntN(n); i < len(list) {
			sample = append(sample, list[i])
		}
	}
	return sample
}

func choose(t testing.TB, n int) []uint64 {
	t.Helper()
	if one, ok := number(t, "FAIRLEAD_SEED"); ok {
		return []uint64{one}
	}
	if os.Getenv("FAIRLEAD_SEED_BASE") == "" {
		n = 1
	}
	if many, ok := number(t, "FAIRLEAD_SEEDS"); ok {
		n = int(min(many, math.MaxInt32))
	}
	seeds, err := recorded("testdata/seeds", t.Name())
	if err != nil {
		t.Fatalf("cannot read the seeds on record: %v", err)
	}
	for i := range n {
		seeds = append(seeds, derive(t.Name(), i))
	}
	return seeds
}

// derive returns the i-th seed of a test. It depends only on the base and the test's name.
func derive(test string, i int) uint64 {
	return Rand(uint64(i), os.Getenv("FAIRLEAD_SEED_BASE"), test).Uint64()
}

// recorded reads the seeds of a test from a file. A missing file has none.
func recorded(path, test string) (seeds []uint64, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for at := 1; lines.Scan(); at++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s:%d: a line is the name of a test and a seed", path, at)
		}
		n, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, at, err)
		}
		if fields[0] == test {
			seeds = append(seeds, n)
		}
	}
	return seeds, lines.Err()
}

func logOnFailure(t testing.TB, test string, seed uint64) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat it: %s", command(test, seed))
		}
	})
}

// command returns the shell command that runs the test with the seed. It runs in the root of the repository.
func command(test string, seed uint64) string {
	module, dir := ".", "."
	if wd, err := os.Getwd(); err == nil {
		module, dir = place(wd)
	}
	pattern := strings.Split(test, "/")
	for i, part := range pattern {
		pattern[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	var goCommand, race string
	if module != "." {
		goCommand = " -C " + module
	}
	if Race {
		race = " -race"
	}
	return fmt.Sprintf("FAIRLEAD_SEED=%d go%s test%s -count 1 -run '%s' ./%s", seed, goCommand, race,
		strings.Join(pattern, "/"), dir)
}

// place returns the directory of the innermost module around dir, relative to the repository, and dir within it.
func place(dir string) (module, rest string) {
	var inner, outer string
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			inner, outer = cmp.Or(inner, at), at
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	module, err := filepath.Rel(outer, inner)
	if err != nil {
		return ".", "."
	}
	rest, err = filepath.Rel(inner, dir)
	if err != nil {
		return ".", "."
	}
	return filepath.ToSlash(module), filepath.ToSlash(rest)
}

func number(t testing.TB, name string) (n uint64, ok bool) {
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
