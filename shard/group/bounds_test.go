package group

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/shard"
)

// TestSteps: each step affects at most an eighth of the slots, moves only boundaries between them, and brings each to
// its goal. The ranges between two steps are in order.
func TestSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := shard.Layout{Slots: 1 << rapid.IntRange(0, 7).Draw(t, "bits")}
		from, goal := drawBounds(t, l, 1).Starts(), drawBounds(t, l, 1).Starts()
		for n := 0; ; n++ {
			next, first, end := step(from, goal)
			if next == nil {
				break
			}
			if end-first > max(2, l.Slots/8) || first < 0 || end > l.Slots {
				t.Fatalf("a step affects the slots from %d to before %d of %d", first, end, l.Slots)
			}
			for i := range next {
				switch inside := first < i && i < end; {
				case !inside && next[i] != from[i]:
					t.Fatalf("boundary %d moves in a step of the slots from %d to before %d", i, first, end)
				case inside && next[i] != goal[i]:
					t.Fatalf("boundary %d is at %x after its step, want %x", i, next[i], goal[i])
				}
			}
			if !slices.IsSorted(next) {
				t.Fatalf("the boundaries are not in order: %x", next)
			}
			if from = next; n > l.Slots {
				t.Fatal("there are more steps than slots")
			}
		}
		if !slices.Equal(from, goal) {
			t.Fatalf("it ends at %x, want %x", from, goal)
		}
	})
}

// TestFewSteps: the first boundaries of the objects, and those that follow, take few steps.
func TestFewSteps(t *testing.T) {
	t.Parallel()
	narrow, wide := make([]uint64, 64), make([]uint64, 64)
	for i := 1; i < 64; i++ {
		narrow[i] = 7<<60 + uint64(i)<<30
		wide[i] = narrow[i] + uint64(i*i%7)<<31
	}
	slices.Sort(wide)
	steps := func(from, to []uint64) (n int) {
		for {
			next, _, _ := step(from, to)
			if next == nil {
				return n
			}
			from = next
			n++
		}
	}
	equal := shard.Layout{}.Starts()
	for _, tc := range []struct {
		reason   string
		from, to []uint64
	}{{"The first.", equal, narrow}, {"Some grow, and some shrink.", narrow, wide}, {"Back.", wide, equal}} {
		if n := steps(tc.from, tc.to); n < 9 || n > 12 {
			t.Errorf("%s %d steps, want 9 to 12", tc.reason, n)
		}
	}
}

// TestFormerFormat: the record of equal ranges is that of the former release.
func TestFormerFormat(t *testing.T) {
	t.Parallel()
	r, _ := change{join: &member{ID: "a", Name: "n", Weight: 1}, found: "uid"}.apply(fresh(shard.Layout{Slots: 4}, "l"))
	const want = `{"format":1,"rev":1,"of":4,"by":"namespace","leader":"l","founded":"uid","members":[{"id":"a",` +
		`"name":"n","weight":1,"since":"0001-01-01T00:00:00Z","holds":"0-3","next":"0-3"}],"sum":"31f721f26034a75a"}`
	if got := r.encode(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r.layout, _ = r.layout.WithStarts(7, []uint64{0, 1, 2, 3})
	if got := r.encode(); !strings.Contains(got, `"format":3`) {
		t.Errorf("a record with boundaries has the form %s", got)
	}
	r, _ = change{drop: []string{"a"}}.apply(r)
	if got := r.encode(); !strings.Contains(got, `"format":1`) {
		t.Errorf("a record without members has the form %s", got)
	}
}

// TestBadBounds: boundaries that members do not write make a record unreadable.
func TestBadBounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		bounds wireBounds
		want   string
	}{
		{wireBounds{}, "neither boundaries nor a goal"},
		{wireBounds{Version: 1}, "is no hash"},
		{wireBounds{Version: 1, Starts: "0,1"}, "2 starts of 4 slots"},
		{wireBounds{Version: 0, Starts: "0,1,2,3"}, "version is 0"},
		{wireBounds{Version: 1, Starts: "0,2,1,3"}, "before slot 1"},
		{wireBounds{Version: 1, Starts: "0,1,2,10000000000000000"}, "is no hash"},
		{wireBounds{Goal: "1,1,1,1"}, "does not begin at hash 0"},
	} {
		if _, _, err := tc.bounds.decode(shard.Layout{Slots: 4}); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v, want %q", tc.bounds, err, tc.want)
		}
	}
}
