package pack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
)

func newItem(data string) *Item {
	it := &Item{}
	it.Set([]byte(data))
	return it
}

// compressedWith returns a registered dictionary, and a function that puts an item compressed with it.
func compressedWith(s *packedItems, data string) (*dict, func(data string) *Item) {
	own := []byte(data)
	d := &dict{data: own, s2: s2.MakeDict(own, nil)}
	s.register(d)
	return d, func(data string) *Item {
		it := newItem(data)
		s.put(it, it.onHeap(), d.s2.Encode(nil, []byte(data)), d)
		return it
	}
}

// TestPackedItemsKeepDictionaries: a dictionary stays registered until it is released and no slot uses it. Then its
// number is reused.
func TestPackedItemsKeepDictionaries(t *testing.T) {
	t.Parallel()
	s := &packedItems{arena: newArena()}
	text := strings.Repeat("in every object; ", 20)
	d, put := compressedWith(s, text)
	one, two := put(text+"one"), put(text+"two")
	registered := func(when string, want int) {
		t.Helper()
		if _, _, got := s.usage(); got != want {
			t.Errorf("%s: %d dictionaries, want %d", when, got, want)
		}
	}
	s.retire(one)
	s.release(d)
	registered("while a slot needs it", 1)
	_, other := compressedWith(s, "another "+text)
	three := other(text + "three")
	registered("with another one", 2)
	s.retire(two)
	registered("after its last slot", 1)
	again, _ := compressedWith(s, text)
	if again.number != 1 {
		t.Errorf("number %d, want the free one", again.number)
	}
	s.release(again)
	registered("released without a slot", 1)
	for it, want := range map[*Item]string{one: "one", two: "two", three: "three"} {
		if got, err := s.append(nil, it); err != nil || string(got) != text+want {
			t.Errorf("%q, error %v, want %q", got, err, text+want)
		}
	}
}

// TestPackedItemsSkipRetiredItems: an item that was superseded before it could be packed gets no slot.
func TestPackedItemsSkipRetiredItems(t *testing.T) {
	t.Parallel()
	s := &packedItems{arena: newArena()}
	it := newItem("superseded")
	h := it.onHeap()
	s.retire(it)
	s.put(it, h, nil, nil)
	if live, _, _ := s.usage(); live != 0 || it.onHeap() == nil {
		t.Errorf("%d bytes in slots", live)
	}
}

// TestPackedItemsTooLargeForASlot: an item that fits no slot stays on the heap, compressed if compression was tried.
func TestPackedItemsTooLargeForASlot(t *testing.T) {
	t.Parallel()
	s := &packedItems{arena: newArena()}
	data := bytes.Repeat([]byte("0123456789abcdef"), maxSlot/16)
	for _, packed := range [][]byte{nil, append(s2.Encode(nil, data), make([]byte, maxSlot)...)} {
		it := newItem(string(data))
		s.put(it, it.onHeap(), packed, nil)
		if h := it.onHeap(); h == nil || h.packed != (packed != nil) || it.slot() != 0 {
			t.Errorf("packed %v: on the heap %+v", packed != nil, h)
		}
	}
}

// registry records the dictionaries of a compressor.
type registry struct{ registered, released []*dict }

func (r *registry) register(d *dict) { r.registered = append(r.registered, d) }
func (r *registry) release(d *dict)  { r.released = append(r.released, d) }

// TestCompressor: a group gets its own dictionary after some objects, and a new one when its objects change.
func TestCompressor(t *testing.T) {
	t.Parallel()
	var numbers registry
	c := newCompressor(&numbers)
	object := func(kind string, n int) (data []byte) {
		common, own := rand.New(rand.NewPCG(1, uint64(len(kind)))), rand.New(rand.NewPCG(2, uint64(n)))
		for range 40 {
			data = fmt.Appendf(data, "%s %x; ", kind, common.Uint64())
		}
		for range 6 {
			data = fmt.Appendf(data, "%x", own.Uint64())
		}
		return data
	}
	const group = 1
	compress := func(data []byte) *dict {
		t.Helper()
		packed, d := c.compress(group, data)
		decode := loose{data: packed, packed: packed != nil, dict: d}
		if packed == nil {
			decode.data = data
		}
		if got, err := decode.unpack(nil); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%q, error %v, want %q", got, err, data)
		}
		c.judge(group, d, len(packed), data)
		return d
	}
	for n := range groupMin - 1 {
		if d := compress(object("pod", n)); d != nil {
			t.Fatalf("object %d has a dictionary", n)
		}
	}
	first := compress(object("pod", 100))
	if first == nil || len(numbers.registered) != 1 {
		t.Fatalf("no dictionary after %d objects", groupMin)
	}
	if packed, _ := c.compress(group, []byte("small")); packed != nil {
		t.Error("a small object was compressed")
	}
	for n := range 5 {
		compress(object("pod", n))
	}
	for n := range groupMin {
		if d := compress(object("something else", n)); d != first {
			t.Fatalf("another dictionary after %d objects of another form", n)
		}
	}
	if len(numbers.released) != 1 || numbers.released[0] != first {
		t.Errorf("released %d dictionaries, want the first one", len(numbers.released))
	}
	if d := compress(object("something else", 0)); d == nil || d == first {
		t.Error("the group has no new dictionary")
	}
	c.endBatch()
	c.releaseEncoders()
	if d := compress(object("something else", 1)); d == nil || d == first {
		t.Error("the dictionary of the group was dropped with its encoder")
	}
}

// TestCompressorSamples: groups without their own dictionary use the common one, once the sample is large enough.
func TestCompressorSamples(t *testing.T) {
	t.Parallel()
	var numbers registry
	c := newCompressor(&numbers)
	data := bytes.Repeat([]byte("common to all groups; "), 100)
	for group := uint64(0); c.needsSample(); group++ {
		if _, d := c.compress(group, data); d != nil {
			t.Fatal("compressed with a dictionary that was not made")
		}
		for range 2 * sampleGroups {
			c.learn(group, data)
		}
		c.endSample()
		if want := int(group+1) * sampleGroups * len(data); c.needsSample() && len(c.sample) != want {
			t.Fatalf("the sample has %d bytes, want %d of each group", len(c.sample), want)
		}
	}
	if _, d := c.compress(1<<40, data); d == nil || d != numbers.registered[0] {
		t.Error("a new group does not use the common dictionary")
	}
}

// TestNursery: an item is aged after two ticks at most, and the oldest items are taken first when there are too many.
func TestNursery(t *testing.T) {
	t.Parallel()
	var y nursery
	items := make([]*Item, 6)
	for i := range items {
		items[i] = newItem("x")
	}
	y.add(sibling{items[0], 0}, 10)
	if aged, more := y.tick(); len(aged) != 0 || !more {
		t.Errorf("aged %d items after one tick, more: %v", len(aged), more)
	}
	y.add(sibling{items[1], 0}, 10)
	if aged, more := y.tick(); len(aged) != 1 || aged[0].item != items[0] || !more || y.bytes != 10 {
		t.Errorf("aged %d items after two ticks, more: %v, %d bytes", len(aged), more, y.bytes)
	}
	for _, it := range items[2:] {
		y.add(sibling{it, 0}, 10)
	}
	items[2].retire()
	list := y.take()
	y.add(sibling{items[0], 0}, 10) // arrives during the batch
	batch, rest, bytes := oldest(list, 40, 100)
	if len(batch) != 2 || batch[0].item != items[1] || batch[1].item != items[3] || len(rest) != 2 || bytes != 20 {
		t.Errorf("%d of %d items, %d bytes remain", len(batch), len(batch)+len(rest), bytes)
	}
	y.putBack(rest, bytes)
	if y.bytes != 30 || y.list[0].item != items[4] || y.list[2].item != items[0] {
		t.Errorf("%d bytes in %d items", y.bytes, len(y.list))
	}
	if batch, rest, _ := oldest(y.take(), 40, 100); len(batch) != 0 || len(rest) != 3 {
		t.Errorf("%d items are taken although there is room", len(batch))
	}
	for live, want := range map[int64]int{0: minYoungBytes, 40 << 20: 20 << 20, 1 << 40: maxYoungBytes} {
		if y.setLimit(live); y.limit() != want {
			t.Errorf("limit %d for %d bytes in slots, want %d", y.limit(), live, want)
		}
	}
}
