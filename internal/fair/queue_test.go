package fair

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestQueueMakesRoom: a key that floods a queue neither delays nor displaces items of another key.
func TestQueueMakesRoom(t *testing.T) {
	t.Parallel()
	var q Queue[string, string]
	const most = 10
	put := func(namespace, name string) (dropped string) {
		if q.Len() >= most {
			it := q.MakeRoom(namespace)
			if it == nil {
				return name
			}
			dropped = it.Value
		}
		q.Push(namespace, name)
		return dropped
	}
	if q.MakeRoom("hostile") != nil {
		t.Error("an empty queue drops an item")
	}
	for i := range most {
		put("hostile", fmt.Sprint("h", i))
	}
	if got := put("hostile", "late"); got != "late" {
		t.Errorf("dropped %q instead of the newest of the only key", got)
	}
	if got := put("victim", "v0"); got != "h9" {
		t.Errorf("dropped %q for another key", got)
	}
	if got := put("victim", "v1"); got != "h8" {
		t.Errorf("dropped %q for another key", got)
	}
	var order []string
	for q.Len() > 0 {
		order = append(order, q.Next(nil).Value)
	}
	if want := []string{"h0", "v0", "h1", "v1", "h2", "h3", "h4", "h5", "h6", "h7"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if len(q.lines) != 0 || q.first != nil || q.last != nil || q.Weight() != 0 {
		t.Errorf("left over: %+v", q)
	}
}

// model is a Queue as plain slices.
type model struct {
	turns []string
	lines map[string][]*Item[string, int]
}

func (m *model) remove(key string, it *Item[string, int]) {
	m.lines[key] = slices.DeleteFunc(m.lines[key], func(o *Item[string, int]) bool { return o == it })
	if len(m.lines[key]) == 0 {
		delete(m.lines, key)
		m.turns = slices.DeleteFunc(m.turns, func(k string) bool { return k == key })
	}
}

func (m *model) add(key string) {
	if !slices.Contains(m.turns, key) {
		m.turns = append(m.turns, key)
	}
}

// TestQueueModel compares a Queue with the model after random operations.
func TestQueueModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[string, int]
		m := &model{lines: map[string][]*Item[string, int]{}}
		added := 0
		keys := rapid.SampledFrom([]string{"a", "b", "c"})
		pick := func(t *rapid.T) (string, *Item[string, int]) {
			if len(m.turns) == 0 {
				return "", nil
			}
			key := rapid.SampledFrom(m.turns).Draw(t, "key")
			return key, rapid.SampledFrom(m.lines[key]).Draw(t, "item")
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				m.add(key)
				added++
				m.lines[key] = append(m.lines[key], q.Push(key, added))
			},
			"add first": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				m.add(key)
				added++
				it := &Item[string, int]{Value: added, Weight: rapid.IntRange(0, 3).Draw(t, "weight")}
				q.AddFirst(key, it)
				m.lines[key] = slices.Insert(m.lines[key], 0, it)
			},
			"remove": func(t *rapid.T) {
				if key, it := pick(t); it != nil {
					it.Remove()
					m.remove(key, it)
					if it.Queued() {
						t.Fatal("a removed item is in the queue")
					}
					it.Remove() // no effect
				}
			},
			"move": func(t *rapid.T) {
				if key, it := pick(t); it != nil {
					it.MoveToEnd()
					others := slices.DeleteFunc(m.lines[key], func(o *Item[string, int]) bool { return o == it })
					m.lines[key] = append(others, it)
				}
			},
			"next": func(t *rapid.T) {
				not := keys.Draw(t, "not")
				got := q.Next(func(key string) bool { return key != not })
				at := slices.IndexFunc(m.turns, func(key string) bool { return key != not })
				if at < 0 {
					if got != nil {
						t.Fatalf("got %d of a key that is not allowed", got.Value)
					}
					return
				}
				key := m.turns[at]
				if got != m.lines[key][0] {
					t.Fatalf("got %+v, want the first of %s", got, key)
				}
				m.turns = append(slices.Delete(m.turns, at, at+1), key)
				m.remove(key, got)
			},
			"": func(t *rapid.T) {
				var turns []string
				all, weight, most := 0, 0, 0
				for l := range q.Lines() {
					turns = append(turns, l.Key)
					var items []*Item[string, int]
					own := 0
					for it := l.First(); it != nil; it = it.Next() {
						items, own = append(items, it), own+it.Weight
						if it.Key() != l.Key {
							t.Fatalf("%d has the key %s, not %s", it.Value, it.Key(), l.Key)
						}
					}
					if !slices.Equal(items, m.lines[l.Key]) || l.last != items[len(items)-1] || l.Len() != len(items) ||
						l.Weight() != own || q.Line(l.Key) != l {
						t.Fatalf("line %s differs", l.Key)
					}
					all, weight, most = all+l.Len(), weight+own, max(most, own)
				}
				if !slices.Equal(m.turns, turns) {
					t.Fatalf("turns %v, want %v", turns, m.turns)
				}
				if q.Len() != all || q.Weight() != weight || len(q.lines) != len(turns) || q.Largest().Weight() != most {
					t.Fatalf("%d items of weight %d in %d lines, want %d of %d in %d", q.Len(), q.Weight(), len(q.lines), all,
						weight, len(turns))
				}
				if first := q.First(); first != nil && first != m.lines[turns[0]][0] {
					t.Fatalf("first is %d", first.Value)
				}
			},
		})
	})
}

// TestAbsentItems: nil lines and items are empty.
func TestAbsentItems(t *testing.T) {
	t.Parallel()
	var q Queue[string, int]
	q.First().Remove()
	if l := q.Line("a"); l.Len()+l.Weight() != 0 || l.First() != nil || q.Next(nil) != nil || q.Largest() != nil {
		t.Error("an empty queue has items")
	}
}

// TestQueueReusesLines: a key whose only item leaves and comes back allocates nothing.
func TestQueueReusesLines(t *testing.T) {
	var q Queue[string, int]
	it := q.Push("a", 1)
	if n := testing.AllocsPerRun(100, func() {
		it.Remove()
		q.Add("a", it)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
