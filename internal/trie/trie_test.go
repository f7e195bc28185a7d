package trie

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pair is a trie element whose hash the test chooses, so that hashes collide.
type pair struct {
	key, value int
	hash       uint64
}

// pairKeys identifies pairs by their key.
type pairKeys struct{}

func (pairKeys) Hash(p *pair) uint64  { return p.hash }
func (pairKeys) Same(p, o *pair) bool { return p.key == o.key }

// TestTrie compares tries with maps. Later versions never change an earlier one.
func TestTrie(t *testing.T) {
	t.Parallel()
	hashes := []uint64{0, 1, 15, 16, 1 << 59, 1<<59 | 1, ^uint64(0), ^uint64(0) - 1, ^uint64(0) - 16, 0xF0F0F0F0F0F0F0F0}
	rapid.Check(t, func(rt *rapid.T) {
		type version struct {
			trie Map[*pair, pairKeys]
			want map[int]int
		}
		cur := version{want: map[int]int{}}
		old := []version{}
		var e *Edit
		rt.Repeat(map[string]func(*rapid.T){
			"set": func(rt *rapid.T) {
				k := rapid.IntRange(0, 40).Draw(rt, "key")
				p := &pair{key: k, value: rapid.Int().Draw(rt, "value"), hash: hashes[k%len(hashes)] + uint64(k/20)<<30}
				_, had := cur.want[k]
				var replaced bool
				cur.trie, _, replaced = cur.trie.Set(e, p)
				if replaced != had {
					rt.Fatalf("replaced %v, want %v", replaced, had)
				}
				cur.want[k] = p.value
			},
			"delete": func(rt *rapid.T) {
				k := rapid.IntRange(0, 40).Draw(rt, "key")
				v, had := cur.want[k]
				next, was, ok := cur.trie.Delete(e, &pair{key: k, hash: hashes[k%len(hashes)] + uint64(k/20)<<30})
				if ok != had || ok && was.value != v {
					rt.Fatalf("deleted %v %v, want %v %v", was, ok, v, had)
				}
				cur.trie = next
				delete(cur.want, k)
			},
			"keep": func(rt *rapid.T) {
				old = append(old, version{cur.trie, maps.Clone(cur.want)})
				e = nil
				if rapid.Bool().Draw(rt, "batch") {
					e = &Edit{}
				}
			},
			"": func(rt *rapid.T) {
				for _, v := range append(slices.Clone(old), cur) {
					checkTrie(rt, v.trie, v.want)
				}
			},
		})
	})
}

func checkTrie(rt *rapid.T, tr Map[*pair, pairKeys], want map[int]int) {
	if tr.len != len(want) {
		rt.Fatalf("len %d, want %d", tr.len, len(want))
	}
	got := map[int]int{}
	last := uint64(0)
	var all []*pair
	for p := range tr.All() {
		if p.hash < last {
			rt.Fatal("not in the order of the hashes")
		}
		last = p.hash
		got[p.key] = p.value
		all = append(all, p)
		if q, ok := tr.Find(&pair{key: p.key, hash: p.hash}); !ok || q != p {
			rt.Fatalf("key %d is not found", p.key)
		}
	}
	if !maps.Equal(got, want) {
		rt.Fatalf("has %v, want %v", got, want)
	}
	for n := 1; n < 4; n++ {
		var paged []*pair
		for at, more := (Place{}), true; more; {
			var some []*pair
			some, at, more = tr.After(at, n)
			paged = append(paged, some...)
		}
		if !slices.Equal(paged, all) {
			rt.Fatalf("by %d: %d elements, want %d", n, len(paged), len(all))
		}
	}
	for _, from := range all {
		w := tr.Seek(from.hash)
		var rest []*pair
		for p, ok := w.Next(); ok; p, ok = w.Next() {
			rest = append(rest, p)
		}
		i := slices.IndexFunc(all, func(p *pair) bool { return p.hash >= from.hash })
		if !slices.Equal(rest, all[i:]) {
			rt.Fatalf("after seek(%x): %d elements, want %d", from.hash, len(rest), len(all)-i)
		}
	}
}
