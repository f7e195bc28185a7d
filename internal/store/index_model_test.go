package store_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// TestIndexModel adds and removes indexes at random among changes, lists and own writes. Some of these happen while an
// index is being added. Each index agrees with its function on the present objects.
func TestIndexModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := &indexModel{s: store.New(store.Options{}), version: 10, have: map[string]bool{}}
		defer m.s.Close()
		m.sink = m.s.Sink("")
		m.change(t, 5, rapid.SampledFrom([]int{0, 30, 300}).Draw(rt, "objects")) // more than one batch of AddIndex
		rt.Repeat(map[string]func(*rapid.T){
			"change": func(rt *rapid.T) { m.change(t, rapid.IntRange(0, 5).Draw(rt, "how"), m.object(rt)) },
			"add":    func(rt *rapid.T) { m.add(t, rt) },
			"remove": func(rt *rapid.T) { m.remove(m.name(rt)) },
			"":       m.check,
		})
	})
}

type indexModel struct {
	s       *store.Store
	sink    source.Sink
	version int
	have    map[string]bool
	adding  string
	removed bool // the index that is being added
}

func (m *indexModel) name(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"one", "two", "three"}).Draw(rt, "index")
}

func (m *indexModel) object(rt *rapid.T) int { return rapid.IntRange(0, 320).Draw(rt, "object") }

// values is the function of all indexes. Each number has two values, some of them shared, and some objects yield an
// error.
func (m *indexModel) values(r *store.Record) ([]string, error) {
	n, _ := r.Label("n")
	if n == "6" {
		return nil, errors.New("it does not like six")
	}
	return []string{n, "of " + r.Name()[len(r.Name())-1:]}, nil
}

func (m *indexModel) change(t *testing.T, how, i int) {
	m.version++
	x := numbered(i, m.version)
	switch how {
	case 0:
		apply(t, m.sink, source.Deleted, x)
	case 1, 2:
		apply(t, m.sink, source.Modified, x)
	case 3:
		if _, err := m.s.Put(source.JSON, x.json()); err != nil {
			t.Error(err)
		}
	case 4:
		m.s.PutDeleted(x.key(), "")
	case 5:
		var things []thing
		for j := range i {
			things = append(things, numbered(j, m.version-j%9))
		}
		list(t, m.sink, m.version, things...)
	}
}

// add adds an index, and changes some objects while the index reads them.
func (m *indexModel) add(t *testing.T, rt *rapid.T) {
	name := m.name(rt)
	type deed struct{ how, object int }
	deeds := map[int]deed{}
	for range rapid.IntRange(0, 8).Draw(rt, "deeds") {
		deeds[rapid.IntRange(0, 320).Draw(rt, "call")] = deed{rapid.IntRange(0, 6).Draw(rt, "how"), m.object(rt)}
	}
	had := m.have[name]
	m.adding, m.removed = name, false
	calls, busy := 0, false
	err := m.s.AddIndex(name, func(r *store.Record) ([]string, error) {
		if d, is := deeds[calls]; is && !busy {
			busy = true
			delete(deeds, calls)
			if d.how == 6 {
				m.remove(name)
			} else {
				m.change(t, d.how, d.object)
			}
			busy = false
		}
		calls++
		return m.values(r)
	})
	m.adding = ""
	if (err != nil) != (had || m.removed) {
		rt.Fatalf("adding %s: error %v; there was one: %v, it was removed: %v", name, err, had, m.removed)
	}
	m.have[name] = had || err == nil
}

func (m *indexModel) remove(name string) {
	m.s.RemoveIndex(name)
	m.have[name] = false
	m.removed = m.removed || m.adding == name
}

func (m *indexModel) check(rt *rapid.T) {
	now := m.s.Snapshot()
	want, bad := map[string][]string{}, []string{}
	for r := range now.All() {
		values, err := m.values(r)
		if err != nil {
			bad = append(bad, r.Name())
		}
		for _, v := range values {
			want[v] = append(want[v], r.Name()+"@"+r.Version())
		}
	}
	for _, objects := range want {
		slices.Sort(objects)
	}
	slices.Sort(bad)
	for _, name := range []string{"one", "two", "three"} {
		if now.HasIndex(name) != m.have[name] {
			rt.Fatalf("index %s exists: %v", name, now.HasIndex(name))
		}
		if !m.have[name] {
			if values := slices.Collect(now.IndexValues(name)); len(values) > 0 || len(now.IndexErrors(name)) > 0 {
				rt.Fatalf("index %s, which was removed, has %v", name, values)
			}
			continue
		}
		got := map[string][]string{}
		for v := range now.IndexValues(name) {
			if got[v] != nil {
				rt.Fatalf("index %s has %s twice", name, v)
			}
			for r := range now.Index(name, v) {
				got[v] = append(got[v], r.Name()+"@"+r.Version())
			}
			slices.Sort(got[v])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Fatalf("index %s (-want +got):\n%s", name, diff)
		}
		var errs []string
		for k := range now.IndexErrors(name) {
			errs = append(errs, k.Name)
		}
		slices.Sort(errs)
		if !slices.Equal(errs, bad) {
			rt.Fatalf("index %s has errors of %v, want of %v", name, errs, bad)
		}
	}
}

// Each value of a built-in index is returned once, however many objects have it.
func TestValuesOfBuiltInIndexes(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Namespaced: true})
	var things []thing
	for i := range 6 {
		things = append(things, thing{
			ns: fmt.Sprint("ns", i%2), name: fmt.Sprint("o", i), uid: fmt.Sprint("u", i), version: i + 1,
			labels: fmt.Sprintf(`"app":"web","n":"%d"`, i%3), owner: fmt.Sprint("owner", i%2),
		})
	}
	list(t, s.Sink(""), 10, things...)
	for name, want := range map[string][]string{
		store.IndexNamespace: {"ns0", "ns1"},
		store.IndexLabel:     {"app=web", "n=0", "n=1", "n=2"},
		store.IndexOwner:     {"owner0", "owner1"},
		"none":               nil,
	} {
		if got := slices.Sorted(s.Snapshot().IndexValues(name)); !slices.Equal(got, want) {
			t.Errorf("index %s has %v, want %v", name, got, want)
		}
		for range s.Snapshot().IndexValues(name) {
			break // the iteration stops at once
		}
	}
}

// A removed index is missing from later snapshots. Its function is not called any more, and its name is free.
func TestRemoveIndex(t *testing.T) {
	t.Parallel()
	s, sink := holding(t, 20)
	asked := 0
	if err := s.AddIndex("n", func(r *store.Record) ([]string, error) { asked++; return label(r) }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(source.JSON, numbered(3, 50).json()); err != nil {
		t.Fatal(err)
	}
	before := s.Snapshot()
	s.RemoveIndex("n")
	s.RemoveIndex("none")
	s.RemoveIndex(store.IndexLabel)
	was := asked
	apply(t, sink, source.Modified, numbered(4, 60))
	apply(t, sink, source.Modified, numbered(3, 61)) // evicts the own write
	if asked != was {
		t.Error("its function is still called")
	}
	if s.Snapshot().HasIndex("n") || !before.HasIndex("n") || !s.Snapshot().HasIndex(store.IndexLabel) {
		t.Errorf("indexes now: %v, before: %v", s.Snapshot().Indexes(), before.Indexes())
	}
	if got := maps.Collect(names(before.Index("n", "1"))); len(got) != 4 { // 3@50 is under 1 with 0, 7 and 14
		t.Errorf("the snapshot that was taken before has %v", got)
	}
	if err := s.AddIndex("n", label); err != nil {
		t.Fatal(err)
	}
	indexed(t, s, "n")
	if err := s.AddIndex("nothing", nil); err == nil || !strings.Contains(err.Error(), "the function is nil") {
		t.Errorf("an index without a function: %v", err)
	}
}

func names(records func(func(*store.Record) bool)) func(func(string, bool) bool) {
	return func(yield func(string, bool) bool) {
		for r := range records {
			if !yield(r.Name(), true) {
				return
			}
		}
	}
}
