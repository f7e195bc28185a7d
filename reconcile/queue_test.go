package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func key(ns string, n int) Key { return Key{Namespace: ns, Name: fmt.Sprint(n)} }

// Namespaces take turns, however many objects one of them has.
func TestNamespacesTakeTurns(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range 1000 {
		q.makeReady(q.item(key("big", i)), high)
	}
	q.makeReady(q.item(key("small", 0)), high)
	q.makeReady(q.item(key("tiny", 0)), high)
	var got []string
	for range 4 {
		got = append(got, q.pick().key.Namespace)
	}
	if want := []string{"big", "small", "tiny", "big"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Objects that are added and removed without a worker are not kept in the lines. This happens in a process that does
// not lead.
func TestLinesKeepNoRemovedObjects(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range 10 {
		q.makeReady(q.item(key("stays", i)), high)
	}
	later := time.Unix(1, 0)
	for i := range 100_000 {
		it := q.item(key(fmt.Sprint("ns", i%1000), i))
		q.makeReady(it, low)
		q.makeReady(it, high)
		q.forget(it)
		again := q.item(key("stays", i%10))
		q.wait(again, later, Scheduled)
		q.makeReady(again, high)
	}
	for p, l := range q.lines {
		held := 0
		for _, own := range l.byNS {
			held += len(own.items)
		}
		if held > 100 || len(l.byNS) > 100 || len(l.turns) > 100 {
			t.Errorf("lines of priority %d: %d items in %d lines, %d turns", p, held, len(l.byNS), len(l.turns))
		}
	}
	for i := range 10 {
		if it := q.pick(); it == nil || it.key.Namespace != "stays" {
			t.Errorf("picked %v after %d", it, i)
		}
	}
	if it := q.pick(); it != nil {
		t.Errorf("picked %v, which is not ready", it.key)
	}
}

// Initial objects wait for live changes, but not for ever.
func TestPriorities(t *testing.T) {
	t.Parallel()
	q := newQueue()
	for i := range 100 {
		q.makeReady(q.item(key("initial", i)), low)
	}
	for i := range 100 {
		q.makeReady(q.item(key("live", i)), high)
	}
	q.makeReady(q.item(key("initial", 99)), high) // one of the initial objects changes
	initial, at := 0, 0
	for i := range 50 {
		it := q.pick()
		if it.key.Namespace == "initial" {
			initial++
		}
		if it.key == key("initial", 99) {
			at = i
		}
	}
	if initial < 50/(lowShare+1) || initial > 2+50/lowShare {
		t.Errorf("%d of 50 were initial", initial)
	}
	if at > 3 {
		t.Errorf("the changed object was picked at %d", at)
	}
}

// Under random operations no key is lost, and none is in two places.
func TestQueueModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue()
		now := time.Unix(0, 0)
		state := map[Key]itemState{}
		due := map[Key]time.Time{}
		keys := rapid.Custom(func(t *rapid.T) Key {
			return key(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "ns"), rapid.IntRange(0, 4).Draw(t, "n"))
		})
		t.Repeat(map[string]func(*rapid.T){
			"ready": func(t *rapid.T) {
				k := keys.Draw(t, "key")
				if state[k] == running {
					t.Skip("it runs")
				}
				q.makeReady(q.item(k), priority(rapid.IntRange(0, 1).Draw(t, "priority")))
				state[k] = ready
			},
			"wait": func(t *rapid.T) {
				k := keys.Draw(t, "key")
				if state[k] == running {
					t.Skip("it runs")
				}
				due[k] = now.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "for")))
				q.wait(q.item(k), due[k], Scheduled)
				state[k] = waiting
			},
			"forget": func(t *rapid.T) {
				k := keys.Draw(t, "key")
				if state[k] == running || q.items[k] == nil {
					t.Skip("it runs, or is not there")
				}
				q.forget(q.items[k])
				delete(state, k)
			},
			"pick": func(t *rapid.T) {
				it := q.pick()
				if it == nil {
					for k, s := range state {
						if s == ready {
							t.Fatalf("%s is ready and is not picked", k)
						}
					}
					return
				}
				if state[it.key] != ready {
					t.Fatalf("picked %s, which is %d", it.key, state[it.key])
				}
				state[it.key] = running
			},
			"finish": func(t *rapid.T) {
				for k, s := range state {
					if s == running {
						it := q.items[k]
						it.state = idle
						q.running--
						q.forget(it)
						delete(state, k)
						return
					}
				}
			},
			"time": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 5).Draw(t, "passes")))
				for it := q.expired(now); it != nil; it = q.expired(now) {
					if state[it.key] != waiting || due[it.key].After(now) {
						t.Fatalf("%s is not due", it.key)
					}
					state[it.key] = idle
				}
				for k, s := range state {
					if s == waiting && !due[k].After(now) {
						t.Fatalf("%s is due and did not come", k)
					}
				}
			},
			"": func(t *rapid.T) {
				for p, l := range q.lines {
					held, live := 0, 0
					for _, own := range l.byNS {
						held += len(own.items)
					}
					for _, it := range q.items {
						if it.state == ready && it.prio == priority(p) {
							live++
						}
					}
					if held != l.entries || live != l.live || len(l.turns) != len(l.byNS) {
						t.Fatalf("lines count %d held and %d live, but have %d and %d", l.entries, l.live, held, live)
					}
				}
				count := map[itemState]int{}
				for _, s := range state {
					count[s]++
				}
				if q.ready != count[ready] || q.running != count[running] || len(q.times) != count[waiting] ||
					q.lines[0].live+q.lines[1].live != q.ready {
					t.Fatalf("ready %d, running %d, waiting %d, in line %d; want %v", q.ready, q.running, len(q.times),
						q.lines[0].live+q.lines[1].live, count)
				}
			},
		})
	})
}

func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	var rs reasons
	for i := range 100 {
		rs.add(Reason{Type: Modified, Source: "Pod", Key: key("a", i%50), Version: fmt.Sprint(i)})
	}
	if len(rs.list) != maxReasons || rs.list[0].Version != "50" || rs.dropped != 2*(50-maxReasons) {
		t.Errorf("%d kept, %d dropped, the first has version %s", len(rs.list), rs.dropped, rs.list[0].Version)
	}
}
