package store_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func numbered(i, version int) thing {
	x := obj(fmt.Sprintf("o%05d", i), fmt.Sprintf("00000000-0000-4000-8000-%012d", i), version)
	x.labels = fmt.Sprintf(`"n":"%d"`, version%7)
	return x
}

func holding(t *testing.T, n int) (*store.Store, source.Sink) {
	t.Helper()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	var things []thing
	for i := range n {
		things = append(things, numbered(i, i+1))
	}
	list(t, sink, n, things...)
	return s, sink
}

func label(r *store.Record) ([]string, error) {
	v, _ := r.Label("n")
	return []string{v}, nil
}

// indexed checks that an index agrees with its function on every object.
func indexed(t *testing.T, s *store.Store, name string) {
	t.Helper()
	now := s.Snapshot()
	want, got := map[string][]string{}, map[string][]string{}
	for r := range now.All() {
		v, _ := r.Label("n")
		want[v] = append(want[v], r.Name()+"@"+r.Version())
	}
	for v := range want {
		for r := range now.Index(name, v) {
			got[v] = append(got[v], r.Name()+"@"+r.Version())
		}
		slices.Sort(want[v])
		slices.Sort(got[v])
		if !slices.Equal(want[v], got[v]) {
			t.Errorf("index %s has %d objects for %s, want %d", name, len(got[v]), v, len(want[v]))
		}
	}
}

// Objects change whenever a new index reads one of them. The index is complete, reads nothing twice, and keeps no
// superseded version alive.
func TestAnIndexIsAddedWhileEverythingChanges(t *testing.T) {
	const n = 3000
	s, sink := holding(t, n)
	version, next, changing := n, 0, false
	asked := map[string]int{}
	var superseded []weak.Pointer[store.Record]
	alive := 0
	err := s.AddIndex("n", func(r *store.Record) ([]string, error) {
		asked[r.Name()+"@"+r.Version()]++
		if !changing && len(asked) < 3*n { // ends even if the index reads an object repeatedly
			changing = true
			before, _ := s.Get(numbered(next, 0).key())
			superseded = append(superseded, weak.Make(before))
			version++
			apply(t, sink, source.Modified, numbered(next, version))
			changing, next = false, (next+1)%n
		}
		if len(superseded) == n {
			s.Flush()
			runtime.GC()
			alive = 0
			for _, p := range superseded {
				if p.Value() != nil {
					alive++
				}
			}
		}
		return label(r)
	})
	if err != nil {
		t.Fatal(err)
	}
	indexed(t, s, "n")
	for r, times := range asked {
		if times > 2 { // once in the change, and perhaps once by the index
			t.Errorf("%s was read %d times", r, times)
		}
	}
	if len(asked) > 2*n {
		t.Errorf("%d versions were read for %d objects", len(asked), n)
	}
	if alive > n/4 {
		t.Errorf("%d of %d superseded versions are kept", alive, n)
	}
	if err := s.AddIndex("n", label); err == nil || !strings.Contains(err.Error(), "the name is in use") {
		t.Errorf("a second one: %v", err)
	}
}

// An index is not visible before it is complete, and its name is taken from the start.
func TestAnIndexIsSeenWhenItIsComplete(t *testing.T) {
	t.Parallel()
	s, _ := holding(t, 1000)
	old := s.Snapshot()
	calls := 0
	err := s.AddIndex("n", func(r *store.Record) ([]string, error) {
		if calls++; calls%100 == 0 {
			if now := s.Snapshot(); now.HasIndex("n") || len(now.IndexErrors("n")) > 0 {
				t.Error("it is visible before it is complete")
			}
			if err := s.AddIndex("n", label); err == nil {
				t.Error("a second index of its name is added")
			}
		}
		return label(r)
	})
	if err != nil || !s.Snapshot().HasIndex("n") || old.HasIndex("n") {
		t.Errorf("error %v; now: %v, before: %v", err, s.Snapshot().HasIndex("n"), old.HasIndex("n"))
	}
	indexed(t, s, "n")
}

// Own writes, changes, deletions and lists of another goroutine run while indexes are added. At the end all indexes are
// right.
func TestIndexesAreAddedAmongWrites(t *testing.T) {
	t.Parallel()
	const n = 2000
	s, sink := holding(t, n)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		version := n
		for i := 0; ; i = (i + 7) % n {
			select {
			case <-done:
				return
			default:
			}
			version++
			x := numbered(i, version)
			switch i % 5 {
			case 0:
				apply(t, sink, source.Deleted, x)
			case 1:
				if _, err := s.Put(source.JSON, x.json()); err != nil {
					t.Error(err)
				}
				s.PutDeleted(numbered((i+1)%n, 0).key(), "")
			case 2:
				if version%100 == 0 {
					list(t, sink, version, numbered(i, version), numbered(i+1, version), numbered(i+2, version-1))
				}
			default:
				apply(t, sink, source.Modified, x)
			}
		}
	})
	for i := range 5 {
		if err := s.AddIndex(fmt.Sprint("n", i), label); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	for i := range 5 {
		indexed(t, s, fmt.Sprint("n", i))
	}
}

// A new index contains an overlaid own write, and keeps it whenever the merged state is rebuilt.
func TestIndexOfOverlaidWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, sink := holding(t, 10)
		if _, err := s.Put(source.JSON, numbered(3, 50).json()); err != nil {
			t.Fatal(err)
		}
		calls := 0
		if err := s.AddIndex("n", func(r *store.Record) ([]string, error) {
			if calls++; calls == 1 { // a list in between
				var things []thing
				for i := range 10 {
					things = append(things, numbered(i, i+1))
				}
				list(t, sink, 20, things...)
			}
			return label(r)
		}); err != nil {
			t.Fatal(err)
		}
		indexed(t, s, "n")
		list(t, sink, 30, numbered(3, 4), numbered(4, 5))
		indexed(t, s, "n")
	})
}
