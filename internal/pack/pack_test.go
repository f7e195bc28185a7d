package pack

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// TestPacker: items keep every byte while they are stored, packed, moved and superseded.
func TestPacker(t *testing.T) {
	t.Parallel()
	current := map[string]*Item{}
	p := New(func(yield func(*Item) bool) { maps.Values(current)(yield) })
	defer p.Close()
	want := map[*Item][]byte{}
	rnd := rand.New(rand.NewPCG(5, 6))
	object := func(group uint64) []byte {
		b := strings.Repeat(fmt.Sprintf("what group %d has in common; ", group), 1+rnd.IntN(60)*rnd.IntN(3))
		for range rnd.IntN(20) {
			b += fmt.Sprintf("%x", rnd.Uint64())
		}
		if rnd.IntN(50) == 0 {
			b += strings.Repeat(fmt.Sprint(rnd.Uint64()), 3000) // does not fit into a slot uncompressed
		}
		return []byte(b)
	}
	var retired []*Item
	for round := range 40 {
		for range 200 {
			group := rnd.Uint64N(8)
			key := fmt.Sprint(group, "/", rnd.IntN(60))
			if old := current[key]; old != nil {
				p.Retire(old)
				if delete(current, key); rnd.IntN(4) == 0 {
					retired = append(retired, old)
				} else {
					delete(want, old)
				}
				if rnd.IntN(4) == 0 {
					continue
				}
			}
			it, data := &Item{}, object(group)
			it.Set(bytes.Clone(data))
			current[key], want[it] = it, data
			if rnd.IntN(2) == 0 {
				p.Keep(it, group)
			} else {
				p.KeepYoung(it, group)
			}
		}
		switch round % 4 {
		case 1:
			p.Flush()
		case 2:
			p.compact()
		}
		for _, items := range []iter.Seq[*Item]{maps.Values(current), func(yield func(*Item) bool) {
			for _, it := range retired {
				if !it.Retired() || !yield(it) {
					t.Error("not retired")
					return
				}
			}
		}} {
			for it := range items {
				got, err := p.Append(nil, it)
				if err != nil || !bytes.Equal(got, want[it]) {
					t.Fatalf("round %d: %q, %v, want %q", round, got, err, want[it])
				}
				if got, err = p.Append([]byte("before"), it); err != nil || string(got) != "before"+string(want[it]) {
					t.Fatalf("round %d: appended: %q, %v", round, got, err)
				}
			}
		}
	}
	p.Flush()
	if st := p.Stats(); st.Unpacked != 0 || st.Live == 0 || st.Dictionaries > 1+8*4 {
		t.Errorf("%+v after all is packed, of 8 groups", st)
	}
	for _, it := range current {
		p.Retire(it)
	}
	if st := p.Stats(); st.Live != 0 || st.Mapped != 0 {
		t.Errorf("%+v although everything is superseded", st)
	}
}

// TestRead reads items on the heap, in the arena and superseded into one buffer: no read changes another's bytes.
func TestRead(t *testing.T) {
	t.Parallel()
	items := make([]*Item, 40)
	p := New(func(yield func(*Item) bool) {
		for _, it := range items {
			if !yield(it) {
				return
			}
		}
	})
	defer p.Close()
	want := func(i int) string { return strings.Repeat(fmt.Sprint("item ", i, ", "), 5+i*i) }
	for i := range items {
		items[i] = &Item{}
		items[i].Set([]byte(want(i)))
	}
	var buf []byte
	check := func() {
		t.Helper()
		for range 2 {
			for i, it := range items {
				if got, err := p.Read(it, &buf); err != nil || string(got) != want(i) {
					t.Fatalf("item %d is %q, error %v", i, got, err)
				}
			}
		}
	}
	check()
	for i, it := range items {
		if i%3 > 0 {
			p.Keep(it, uint64(i%3))
		}
	}
	p.Flush()
	check()
	for _, it := range items[:20] {
		p.Retire(it)
	}
	check()
}

// TestKeepNoMore: items of Keep are packed when no more follow, unless they are few.
func TestKeepNoMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason        string
		bytes, onHeap int
	}{
		{"less than a dictionary is worth", packRest / 2, packRest / 2},
		{"less than a round that begins by itself", packRest * 2, 0},
	} {
		p := New(func(func(*Item) bool) {})
		for i := 0; i < c.bytes; i += 1 << 10 {
			p.Keep(newItem(strings.Repeat(fmt.Sprintf("%08x", i), 1<<7)), 1)
		}
		p.KeepNoMore()
		p.Close() // waits for the round
		if got := p.Stats().Unpacked; got != int64(c.onHeap) {
			t.Errorf("%s: %d of %d bytes are not packed, want %d", c.reason, got, c.bytes, c.onHeap)
		}
	}
}

// TestDictionariesShareMemory: dictionaries are copies of their objects that lie close together.
func TestDictionariesShareMemory(t *testing.T) { //nolint:paralleltest // it counts the bytes that the process allocates
	const n, size = 200, 3000
	c := newCompressor(&packedItems{arena: newArena()})
	var objects [n][]byte
	for i := range objects {
		objects[i] = bytes.Repeat(fmt.Appendf(nil, "%08x", i), size/8)
	}
	var dicts [n]*dict
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, data := range objects {
		dicts[i] = c.newDict(data)
	}
	runtime.ReadMemStats(&after)
	for i, d := range dicts {
		if !bytes.Equal(d.data, objects[i]) {
			t.Fatalf("dictionary %d was overwritten: %.20q", i, d.data)
		}
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > n*(size+size/3) {
		t.Errorf("%d dictionaries of %d bytes took %d bytes", n, size, got)
	}
	if large := c.newDict(bytes.Repeat(objects[0], 20)); len(large.data) != 20*size {
		t.Errorf("a large dictionary has %d bytes", len(large.data))
	}
}
