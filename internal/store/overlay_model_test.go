package store_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestOverlayModel: in any order of answers and events, a read never goes behind an answered write (C1) or delete (C2).
// Once the watch has caught up, the merged state is the server's state.
func TestOverlayModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := store.New(store.Options{})
		defer s.Close()
		sink := s.Sink("")
		sink.Replace().Commit(source.Commit{Version: "1"})
		type step struct {
			typ source.ChangeType
			x   thing
		}
		var history []step // of the server
		sent, version, uids := 0, 1, 0
		server := map[store.Key]thing{}
		floor := map[store.Key]int{} // the oldest version that a read may return
		seen := map[string]int{}     // the newest version read of an incarnation
		goneUID := map[string]bool{}
		feed := func(n int) {
			for ; n > 0 && sent < len(history); n-- {
				if err := sink.Apply(history[sent].typ, history[sent].x.object()); err != nil {
					rt.Fatal(err)
				}
				sent++
			}
		}
		write := func(rt *rapid.T, own bool) {
			k := store.Key{Namespace: "ns", Name: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "name")}
			x, ok := server[k]
			version++
			typ := source.Modified
			if !ok {
				uids++
				x, typ = obj(k.Name, fmt.Sprint("u", uids), 0), source.Added
			}
			x.version = version
			if ok && rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
				delete(server, k)
				history = append(history, step{source.Deleted, x})
				feedBefore := rapid.IntRange(0, 3).Draw(rt, "fed before the answer")
				feed(feedBefore)
				if own {
					goneUID[x.uid] = true // the answer has no version, so it says nothing of other incarnations
					s.PutDeleted(k, types.UID(x.uid))
				}
				return
			}
			server[k] = x
			history = append(history, step{typ, x})
			feed(rapid.IntRange(0, 3).Draw(rt, "fed before the answer"))
			if own {
				floor[k] = version
				if _, err := s.Put(source.JSON, x.json()); err != nil {
					rt.Fatal(err)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"own":     func(rt *rapid.T) { write(rt, true) },
			"foreign": func(rt *rapid.T) { write(rt, false) },
			"watch":   func(rt *rapid.T) { feed(rapid.IntRange(1, 4).Draw(rt, "n")) },
			"relist": func(rt *rapid.T) {
				r := sink.Replace()
				for _, x := range server {
					if err := r.Put(x.object()); err != nil {
						rt.Fatal(err)
					}
				}
				r.Commit(source.Commit{Version: fmt.Sprint(version)})
				sent = len(history)
			},
			"": func(rt *rapid.T) {
				for k, least := range floor {
					r, ok := s.Get(k)
					x, exists := server[k]
					if !ok && exists && x.version == least {
						rt.Fatalf("C1: %s@%d was written and is not read", k, least)
					}
					if ok && number(r.Version()) < least {
						rt.Fatalf("C1: %s is read at %s after a write at %d", k, r.Version(), least)
					}
				}
				for r := range s.Snapshot().All() {
					uid, version := string(r.UID()), number(r.Version())
					if goneUID[uid] {
						rt.Fatalf("C2: %s of the deleted incarnation %s is read", r.Key(), uid)
					}
					if version < seen[uid] {
						rt.Fatalf("%s is read at %d after %d", r.Key(), version, seen[uid])
					}
					seen[uid] = version
				}
				if base := s.OverlayStats().Entries; sent == len(history) && base != 0 {
					rt.Fatalf("%d entries are left although the watch has caught up", base)
				}
			},
		})
		feed(len(history))
		want := []string{}
		for k, x := range server {
			want = append(want, fmt.Sprintf("%s@%d", k, x.version))
		}
		if d := cmp.Diff(sortStrings(want), read(s)); d != "" {
			rt.Fatalf("at rest (-server +read):\n%s", d)
		}
	})
}

func number(version string) int {
	n, err := strconv.Atoi(version)
	if err != nil {
		panic(err)
	}
	return n
}
