package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/source"
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
				data := bytes.Repeat([]byte{fill}, rapid.SampledFrom([]int{0, 1, 60, 61, 500, 5000, maxSlot - slotStart}).Draw(rt, "size"))
				ref, ok := a.put(data)
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
					next, ok := a.putElsewhere(bytes.Clone(a.data(ref)), ref)
					if !ok || next>>16 == ref>>16 {
						rt.Fatal("not moved to another block")
					}
					a.free(ref)
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
			rt.Fatal("blocks were not given back")
		}
	})
	if _, ok := newArena().put(make([]byte, maxSlot)); ok {
		t.Error("an object that is too large was taken")
	}
}

func packed(ns, name string, version int, body string) *source.Object {
	raw := fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":%q,"uid":"u-%s","resourceVersion":"%d","labels":{"app":%q}},"spec":%q}`, ns, name, name, version, ns, body)
	o := &source.Object{Raw: raw}
	if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
		panic(err)
	}
	return o
}

// TestPacking: objects come back byte by byte, however often they change, are packed, superseded, deleted and moved.
func TestPacking(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	defer s.Close()
	sink := s.Sink("")
	sink.Replace().Commit(source.Commit{Version: "1"})
	rnd := rand.New(rand.NewPCG(1, 2))
	want := map[Key][]byte{}
	type kept struct {
		r   *Record
		raw []byte
	}
	var old []kept
	version := 10
	body := func(app int) string {
		b := strings.Repeat(fmt.Sprintf("workload %d has much in common; ", app), 1+rnd.IntN(40)*(1+rnd.IntN(30)*rnd.IntN(2)))
		for range rnd.IntN(20) {
			b += fmt.Sprintf("%x", rnd.Uint64())
		}
		return b
	}
	for round := range 30 {
		for range 200 {
			app, version0 := rnd.IntN(8), version
			version = version0 + 1
			k := Key{fmt.Sprint("ns", app), fmt.Sprint("o", rnd.IntN(60))}
			o := packed(k.Namespace, k.Name, version, body(app+round/10*100))
			if r, ok := s.Get(k); ok && rnd.IntN(4) == 0 {
				old = append(old, kept{r, bytes.Clone(want[k])})
			}
			typ := source.Modified
			if rnd.IntN(4) == 0 {
				typ = source.Deleted
				delete(want, k)
			} else {
				want[k] = o.Raw
			}
			if err := sink.Apply(typ, o); err != nil {
				t.Fatal(err)
			}
		}
		s.Flush()
		if round%7 == 3 {
			s.compact()
		}
		for k, raw := range want {
			if r, ok := s.Get(k); !ok || !bytes.Equal(r.Raw(), raw) {
				t.Fatalf("round %d: %s is not what was stored", round, k)
			}
		}
	}
	for _, o := range old {
		if !bytes.Equal(o.r.Raw(), o.raw) {
			t.Fatalf("%s@%s, which is superseded, is not what was stored", o.r.Key(), o.r.Version())
		}
	}
	if st := s.MemoryStats(); st.Dictionaries > 1+8*4 {
		t.Errorf("%d dictionaries for 8 workloads", st.Dictionaries)
	}
	sink.Replace().Commit(source.Commit{Version: "900000"})
	if st := s.MemoryStats(); st.Live != 0 || st.Mapped != 0 {
		t.Errorf("an empty store has %d bytes live and %d mapped", st.Live, st.Mapped)
	}
}

func TestCompaction(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	defer s.Close()
	sink := s.Sink("")
	rnd := rand.New(rand.NewPCG(3, 4))
	r := sink.Replace()
	const n = 12_000
	objects := make([]*source.Object, n)
	for i := range objects {
		noise := make([]byte, 400)
		for j := range noise {
			noise[j] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[rnd.IntN(64)]
		}
		objects[i] = packed("ns", fmt.Sprint("o", i), 10+i, string(noise))
		if err := r.Put(objects[i]); err != nil {
			t.Fatal(err)
		}
	}
	r.Commit(source.Commit{Version: "50000"})
	s.Flush()
	full := s.MemoryStats().Mapped
	r = sink.Replace() // every fourth remains
	for i := 0; i < n; i += 4 {
		if err := r.Put(objects[i]); err != nil {
			t.Fatal(err)
		}
	}
	r.Commit(source.Commit{Version: "60000"})
	s.Flush()
	if after := s.MemoryStats(); after.Mapped > full/2 {
		t.Errorf("%d bytes for a quarter of the objects, %d for all of them", after.Mapped, full)
	}
	for i := 0; i < n; i += 4 {
		rec, ok := s.Get(Key{"ns", fmt.Sprint("o", i)})
		if !ok || !bytes.Equal(rec.Raw(), objects[i].Raw) {
			t.Fatalf("object %d is not what was stored", i)
		}
	}
}

func TestAbortGivesBack(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	defer s.Close()
	r := s.Sink("").Replace()
	for i := range 100 {
		if err := r.Put(packed("ns", fmt.Sprint("o", i), 10+i, strings.Repeat("x", 300))); err != nil {
			t.Fatal(err)
		}
	}
	s.Flush()
	if s.MemoryStats().Live == 0 {
		t.Fatal("staged objects are not packed")
	}
	r.Abort()
	if live := s.MemoryStats().Live; live != 0 {
		t.Errorf("%d bytes are live after an abort", live)
	}
}
