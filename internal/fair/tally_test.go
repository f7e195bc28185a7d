package fair

import "testing"

// TestTally: a key may use as much as is free. Each key therefore leaves as much to the next one as it takes.
func TestTally(t *testing.T) {
	t.Parallel()
	const most = 100
	var tally Tally[string]
	fill := func(key string) (n int) {
		for ; tally.Of(key) < most-tally.All(); n++ {
			tally.Add(key, 1)
		}
		return n
	}
	for _, want := range []struct {
		key string
		n   int
	}{{"a", 50}, {"b", 25}, {"c", 13}, {"a", 0}} {
		if got := fill(want.key); got != want.n {
			t.Errorf("%s got %d, want %d", want.key, got, want.n)
		}
	}
	for key, n := range map[string]int{"a": 50, "b": 25, "c": 13} {
		tally.Add(key, -n)
	}
	if tally.All() != 0 || len(tally.byKey) != 0 {
		t.Errorf("left over: %+v", tally)
	}
}
