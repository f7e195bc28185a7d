package flowtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// seedVariable is the environment variable that makes Explore run a single seed, such as one printed by a failure.
const seedVariable = "FLOWTEST_SEED"

// Explore runs body on schedules numbered from 1, each in its own bubble. It stops at the first failure and prints the
// seed and the order of the points. body sets up the world, then calls [Schedule.Run].
func Explore(t *testing.T, schedules int, body func(s *Schedule)) {
	t.Helper()
	first, last := uint64(1), uint64(schedules)
	if v := os.Getenv(seedVariable); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatalf("cannot read %s: %v", seedVariable, err)
		}
		first, last = seed, seed
	}
	for seed := first; seed <= last; seed++ {
		synctest.Test(t, func(t *testing.T) {
			s := &Schedule{TB: t, Seed: seed, rng: rand.New(rand.NewPCG(seed, 0))}
			defer func() {
				s.free()
				if t.Failed() { // logs here, because the test ends with the bubble
					t.Logf("schedule with seed %d failed (repeat it with %s=%d); its points:\n%s", seed, seedVariable, seed,
						s.history())
				}
			}()
			body(s)
		})
	}
}

// Schedule decides by its seed in which order the code under test passes its points. It lets one caller pass at a time,
// when all other goroutines are blocked. Its methods may be called from any goroutine of the bubble.
type Schedule struct {
	testing.TB
	Seed uint64

	mu      sync.Mutex
	rng     *rand.Rand
	waiting []point
	actors  int
	passed  []string
	open    bool // the schedule is over: points do not block
}

type point struct {
	name string
	pass chan struct{}
}

// N returns a number from 0 to n-1, which the schedule chooses.
func (s *Schedule) N(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// Point blocks until the schedule lets the caller pass. The names of the waiting points should be unique; otherwise the
// schedule is not repeatable. If ctx ends first, Point returns its cause.
func (s *Schedule) Point(ctx context.Context, name string) error {
	p := point{name, make(chan struct{})}
	s.mu.Lock()
	if s.open {
		s.mu.Unlock()
		return nil
	}
	s.waiting = append(s.waiting, p)
	s.mu.Unlock()
	select {
	case <-p.pass:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		s.waiting = slices.DeleteFunc(s.waiting, func(q point) bool { return q.pass == p.pass })
		s.mu.Unlock()
		return context.Cause(ctx)
	}
}

// Go starts an actor: code that runs concurrently with the engine and passes points. Run waits until it has returned.
func (s *Schedule) Go(name string, actor func(pass func())) {
	s.mu.Lock()
	s.actors++
	s.mu.Unlock()
	n := 0
	go func() {
		defer func() {
			s.mu.Lock()
			s.actors--
			s.mu.Unlock()
		}()
		actor(func() {
			n++
			_ = s.Point(context.Background(), name+"/"+strconv.Itoa(n)) // cannot fail: the context never ends
		})
	}()
}

// Run runs the schedule until all actors have returned, no point is waiting, and idle returns true. Run calls idle only
// when all goroutines are blocked. Fake time advances when no point passes. Run fails the test if the schedule takes
// longer than limit of fake time.
func (s *Schedule) Run(limit time.Duration, idle func() bool) {
	s.Helper()
	for end := time.Now().Add(limit); ; {
		synctest.Wait()
		if s.passOne() {
			continue
		}
		s.mu.Lock()
		actors := s.actors
		s.mu.Unlock()
		if actors == 0 && idle() {
			return
		}
		if time.Now().After(end) {
			s.Errorf("not done after %v: %d actors are left", limit, actors)
			return
		}
		time.Sleep(time.Duration(1 + s.N(int(10*time.Millisecond)))) //nolint:forbidigo // on the fake clock
	}
}

// passOne lets one of the waiting points pass. Sometimes it passes none, so that time advances.
func (s *Schedule) passOne() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.rng.IntN(16) == 0 {
		return false
	}
	slices.SortFunc(s.waiting, func(a, b point) int { return strings.Compare(a.name, b.name) })
	i := s.rng.IntN(len(s.waiting))
	p := s.waiting[i]
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.passed = append(s.passed, fmt.Sprintf("%s at %v", p.name, time.Now().Format("05.000000")))
	close(p.pass)
	return true
}

// free lets all points pass, so that the bubble can end.
func (s *Schedule) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	for _, p := range s.waiting {
		close(p.pass)
	}
	s.waiting = nil
}

func (s *Schedule) history() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.passed, "\n")
}
