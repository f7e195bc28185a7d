package pack

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestSlotClasses(t *testing.T) {
	t.Parallel()
	for n := 1; n <= maxSlot; n++ {
		c := classOf(n)
		if c >= classes || slotSize(c) < n || c > 0 && slotSize(c-1) >= n {
			t.Fatalf("%d bytes go to class %d of %d bytes", n, c, slotSize(c))
		}
	}
}

// TestArena compares the arena with a map of slices.
func TestArena(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		a := newArena()
		have := map[slotRef][]byte{}
		fill := byte(0)
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				fill++
				sizes := []int{0, 1, 60, 61, 500, 5000, maxSlot - slotStart}
				data := bytes.Repeat([]byte{fill}, rapid.SampledFrom(sizes).Draw(rt, "size"))
				head := rapid.IntRange(0, min(3, len(data))).Draw(rt, "head")
				ref, ok := a.put(data[:head], data[head:])
				if _, taken := have[ref]; !ok || taken {
					rt.Fatalf("put: %v, slot taken: %v", ok, taken)
				}
				have[ref] = data
			},
			"free": func(rt *rapid.T) {
				for ref := range have {
					a.free(ref)
					delete(have, ref)
					break
				}
			},
			"move": func(rt *rapid.T) {
				for ref, data := range have {
					next, ok := a.move(ref)
					if !ok || next>>16 == ref>>16 {
						rt.Fatal("not moved to another block")
					}
					delete(have, ref)
					have[next] = data
					break
				}
			},
			"": func(rt *rapid.T) {
				live := int64(0)
				for ref, data := range have {
					if !bytes.Equal(a.data(ref), data) {
						rt.Fatalf("slot %x changed", ref)
					}
					live += int64(slotSize(classOf(len(data) + slotStart)))
				}
				if a.live != live || a.mapped < live {
					rt.Fatalf("live %d, mapped %d, want %d live", a.live, a.mapped, live)
				}
				if len(have) == 0 && (a.mapped != 0 || len(a.memory.blocks) != 0) {
					rt.Fatalf("an empty arena has %d bytes in %d blocks", a.mapped, len(a.memory.blocks))
				}
			},
		})
		for ref := range have {
			a.free(ref)
		}
		if len(a.memory.blocks) != 0 {
			rt.Fatal("blocks were not freed")
		}
	})
	if _, ok := newArena().put(nil, make([]byte, maxSlot)); ok {
		t.Error("an object that is too large was accepted")
	}
}
