package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
)

func packed(ns, name string, version int, body string) *source.Object {
	raw := fmt.Appendf(nil,
		`{"metadata":{"namespace":%q,"name":%q,"uid":"u-%s","resourceVersion":"%d","labels":{"app":%q}},"spec":%q}`, ns, name,
		name, version, ns, body)
	o := &source.Object{Raw: raw}
	if err := source.Scan(source.JSON, raw, &o.Header); err != nil {
		panic(err)
	}
	return o
}

// TestPacking: objects keep every byte, however often they are changed, packed, superseded, deleted and moved.
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
		for k, raw := range want {
			if r, ok := s.Get(k); !ok || !bytes.Equal(r.Raw(), raw) {
				t.Fatalf("round %d: %s differs from the stored bytes", round, k)
			}
		}
	}
	for _, o := range old {
		if !bytes.Equal(o.r.Raw(), o.raw) {
			t.Fatalf("the superseded %s@%s differs from the stored bytes", o.r.Key(), o.r.Version())
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
	r = sink.Replace() // every fourth object remains
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
			t.Fatalf("object %d differs from the stored bytes", i)
		}
	}
}

func TestAbortFreesMemory(t *testing.T) {
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

// TestCommitPacks: after a list no object waits for others, to be packed together with them.
func TestCommitPacks(t *testing.T) {
	t.Parallel()
	s := New(Options{})
	list := s.Sink("").Replace()
	for i := range 1000 {
		if err := list.Put(packed("ns", fmt.Sprint("o", i), i+1, strings.Repeat("the same in all; ", 60))); err != nil {
			t.Fatal(err)
		}
	}
	list.Commit(source.Commit{Version: "2000"})
	s.Close() // waits for the round
	if m := s.MemoryStats(); m.Unpacked != 0 || m.Live == 0 {
		t.Errorf("%d bytes are not packed, %d are", m.Unpacked, m.Live)
	}
}

// TestSiblings: objects with equal labels share a dictionary across namespaces. Objects without labels do not.
func TestSiblings(t *testing.T) {
	t.Parallel()
	in := newInterner()
	siblings := func(ns string, labels ...source.Pair) uint64 {
		return in.shape(&source.Header{Namespace: []byte(ns), Labels: labels}).siblings
	}
	app := source.Pair{Key: []byte("app"), Value: []byte("web")}
	other := source.Pair{Key: []byte("app"), Value: []byte("db")}
	hash := source.Pair{Key: []byte("pod-template-hash"), Value: []byte("1a")}
	next := source.Pair{Key: []byte("pod-template-hash"), Value: []byte("2b")}
	for _, c := range []struct {
		reason string
		a, b   uint64
		same   bool
	}{
		{"one program of two tenants", siblings("a", app), siblings("b", app), true},
		{"two programs", siblings("a", app), siblings("a", other), false},
		{"two revisions", siblings("a", app, hash), siblings("b", app, next), true},
		{"no labels", siblings("a"), siblings("b"), false},
		{"no labels, in one namespace", siblings("a"), siblings("a"), true},
	} {
		if (c.a == c.b) != c.same {
			t.Errorf("%s: siblings is %t, want %t", c.reason, c.a == c.b, c.same)
		}
	}
}
