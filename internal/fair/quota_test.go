package fair

import "testing"

// TestQuota: keys that use no more than is free leave to the next one as much as they take.
func TestQuota(t *testing.T) {
	t.Parallel()
	q := Quota[string]{Most: 100}
	fill := func(key string) (n int) {
		for ; q.Held(key) < q.Free(); n++ {
			q.Add(key, 1)
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
		q.Add(key, -n)
	}
	if q.Free() != 100 || len(q.byKey) != 0 {
		t.Errorf("left over: %+v", q)
	}
}
