package reconcile

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestBefore: the reported number of objects before another one equals the number picked before it, if nothing else
// changes.
func TestBefore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		var all []*item
		for i := range rapid.IntRange(1, 60).Draw(t, "objects") {
			it := q.item(key(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "namespace"), i))
			q.makeReady(it, high)
			all = append(all, it)
		}
		for range rapid.IntRange(0, 10).Draw(t, "picked") {
			if it := q.pick(); it != nil {
				it.state = idle
				q.running--
			}
		}
		it := rapid.SampledFrom(all).Draw(t, "asked")
		if it.state != ready {
			return
		}
		before, own := q.ahead(it)
		var picked, same int
		for {
			next := q.pick()
			if next == it {
				break
			}
			if picked++; next.key.Namespace == it.key.Namespace {
				same++
			}
		}
		if before != picked || own != same {
			t.Fatalf("reported %d before it, %d of its namespace; picked %d and %d", before, own, picked, same)
		}
	})
}

// TestRuns: running reconciliations are listed in the order of their starts.
func TestRuns(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var l runs
		var want []*reconciliation
		for range rapid.IntRange(0, 50).Draw(t, "steps") {
			if len(want) == 0 || rapid.Bool().Draw(t, "begins") {
				r := &reconciliation{}
				l.add(r)
				want = append(want, r)
				continue
			}
			i := rapid.IntRange(0, len(want)-1).Draw(t, "ends")
			l.remove(want[i])
			want = append(want[:i:i], want[i+1:]...)
		}
		r := l.first
		for i, w := range want {
			if r != w {
				t.Fatalf("number %d of %d differs", i, len(want))
			}
			r = r.next
		}
		if r != nil || len(want) == 0 && l.last != nil {
			t.Fatal("there are further runs")
		}
	})
}

// TestHistory: the history has the last successes, and of one object the newest.
func TestHistory(t *testing.T) {
	t.Parallel()
	var h history
	at := time.Unix(1000, 0)
	for i := range 3 * keptSuccesses {
		h.add(key("a", i%(keptSuccesses/2)), "", at.Add(time.Duration(i)*time.Second))
	}
	if got := h.last(key("a", 0)); !got.Equal(at.Add(5 * keptSuccesses / 2 * time.Second)) {
		t.Errorf("the last success was at %v", got)
	}
	if got := h.last(key("b", 0)); !got.IsZero() {
		t.Errorf("another object: %v", got)
	}
	if len(h.ring) != keptSuccesses {
		t.Errorf("%d are kept", len(h.ring))
	}
}

// BenchmarkWhy asks for the last of 100,000 ready objects of one namespace.
func BenchmarkWhy(b *testing.B) {
	s := &scheduler{q: newQueue(), limit: 1}
	const n = 100_000
	for i := range n {
		s.q.makeReady(s.q.item(key("a", i)), high)
	}
	for b.Loop() {
		if o := s.object(key("a", n-1)); o.before != maxScanned {
			b.Fatalf("%d objects are before it", o.before)
		}
	}
}
