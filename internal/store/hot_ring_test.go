package store

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/seed"
)

// An asked table never counts an object too often, forgets objects that are not asked for any more, and finds nearly
// all of those that are asked for again while many others are.
func TestAskedTable(t *testing.T) {
	t.Parallel()
	const objects = 1000
	var a askedTable
	if !a.isEmpty() {
		t.Error("a new table is not empty")
	}
	a.fit(objects)
	places := len(a.sets) * askedWays
	if places < objects*askedPlaces || places > 2*objects*askedPlaces {
		t.Errorf("%d places for %d objects", places, objects)
	}
	rnd := seed.Rand(1)
	again := make([]uint64, objects)
	for i := range again {
		again[i] = rnd.Uint64()
	}
	found := 0
	for round := range uint8(3) {
		found = 0
		for _, hash := range again {
			n, aged := a.add(hash)
			if n > round+1 || aged {
				t.Fatalf("count %d after %d rounds; aged: %v", n, round+1, aged)
			}
			if n == round+1 {
				found++
			}
			if n, _ := a.add(rnd.Uint64()); n != 1 {
				t.Fatalf("count %d of an object that was never asked for", n)
			}
		}
	}
	if found < objects*9/10 {
		t.Errorf("%d of %d objects have the count 3", found, objects)
	}
	for range maxHeat * 2 {
		a.add(again[0])
	}
	for halved := 0; halved < 4; {
		if n, aged := a.add(rnd.Uint64()); n != 1 {
			t.Fatalf("count %d of an object that was never asked for", n)
		} else if aged {
			halved++
		}
	}
	if n, _ := a.add(again[0]); n > 1 {
		t.Errorf("count %d of an object that was not asked for during four ages", n)
	}
	a.fit(objects / 2)
	if len(a.sets)*askedWays != places {
		t.Error("the table became smaller")
	}
}

// Readers yield while they decode without a pause, and not if they decode seldom.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pace
		yields := func(pause time.Duration) (n int) {
			for range 100 {
				time.Sleep(pause)
				if p.add(yieldBytes / 4) {
					n++
				}
			}
			return n
		}
		yields(0)
		if n := yields(timeSlice / 8); n != 25 {
			t.Errorf("%d yields of readers that decode much, want 25", n)
		}
		if n := yields(timeSlice / 2); n != 0 {
			t.Errorf("%d yields of readers that decode seldom", n)
		}
	})
}
