package apiserver

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"
)

// model is the store as a list of states, one per revision.
type model struct {
	states  map[uint64]map[string]uint64 // revision → key → revision of the object
	rev     uint64
	compact uint64
}

func (m *model) write(key string, deleted bool) {
	next := maps.Clone(m.states[m.rev])
	m.rev++
	if deleted {
		delete(next, key)
	} else {
		next[key] = m.rev
	}
	m.states[m.rev] = next
}

func describe(objects []*object) map[string]uint64 {
	out := map[string]uint64{}
	for _, o := range objects {
		out[o.key()] = o.rev
	}
	return out
}

// TestStoreAgainstModel writes, compacts and rolls back at random. After each step every readable revision must show
// the state that it had, sorted, and folding the events after it must give the present state.
func TestStoreAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		st := newStore(versioner{})
		st.register(Widgets())
		tab := st.table(Widgets().GVR())
		m := &model{states: map[uint64]map[string]uint64{1: {}}, rev: 1, compact: 1}
		make1 := func(key string) func(uint64) *object {
			return func(rev uint64) *object { return &object{table: tab, rev: rev, namespace: "a", name: key} }
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "name")
			key := objectKey("a", name)
			base := st.get(tab, key)
			switch op := rapid.IntRange(0, 9).Draw(t, "op"); {
			case op == 0:
				at := m.compact + uint64(rapid.IntRange(0, int(m.rev-m.compact)).Draw(t, "compact"))
				st.compact(at)
				m.compact = max(m.compact, at)
			case op == 1:
				at := m.compact + uint64(rapid.IntRange(0, int(m.rev-m.compact)).Draw(t, "rollback"))
				if err := st.rollback(at); err != nil {
					t.Fatal(err)
				}
				m.rev = at
			case op <= 3 && base != nil:
				if st.commit(tab, key, watch.Deleted, base, make1(name)) == nil {
					t.Fatal("refused")
				}
				m.write(key, true)
			default:
				typ := watch.Modified
				if base == nil {
					typ = watch.Added
				}
				if st.commit(tab, key, typ, base, make1(name)) == nil {
					t.Fatal("refused")
				}
				if st.commit(tab, key, typ, base, make1(name)) != nil {
					t.Fatal("a write on a state that is not the present one went through")
				}
				m.write(key, false)
			}
			for rev := m.compact; rev <= m.rev; rev++ {
				objects, at, ok := st.snapshotAt(tab, rev)
				if diff := cmp.Diff(m.states[rev], describe(objects)); !ok || at != rev || diff != "" {
					t.Fatalf("state at %d (%v): %s", rev, ok, diff)
				}
				if !slices.IsSortedFunc(objects, func(a, b *object) int { return strings.Compare(a.key(), b.key()) }) {
					t.Fatalf("state at %d is not sorted", rev)
				}
				events, now, _, ok := st.eventsAfter(tab, rev)
				if !ok || now != m.rev {
					t.Fatalf("events after %d: %v, now %d", rev, ok, now)
				}
				fold := maps.Clone(m.states[rev])
				for _, e := range events {
					_, had := fold[e.cur.key()]
					if had == (e.typ == watch.Added) || had && e.prev.rev != fold[e.cur.key()] {
						t.Fatalf("event %s at %d does not follow from the state before", e.typ, e.rev)
					}
					if fold[e.cur.key()] = e.rev; e.typ == watch.Deleted {
						delete(fold, e.cur.key())
					}
				}
				if diff := cmp.Diff(m.states[m.rev], fold); diff != "" {
					t.Fatalf("events after %d do not lead to the present state: %s", rev, diff)
				}
			}
			if m.compact > 1 {
				if _, _, ok := st.snapshotAt(tab, m.compact-1); ok {
					t.Fatal("a state from before the compaction can be read")
				}
			}
		}
	})
}

// TestSelectorChangeFollowsMembership: what a filtered watch is told must be the change of what it may see.
func TestSelectorChangeFollowsMembership(t *testing.T) {
	t.Parallel()
	st := newStore(versioner{})
	st.register(Widgets())
	tab := st.table(Widgets().GVR())
	obj := func(app string) *object {
		return newObject(tab, 1, map[string]any{
			"metadata": map[string]any{"namespace": "a", "name": "x", "labels": map[string]any{"app": app}},
		})
	}
	sel := selection{table: tab, labels: labels.SelectorFromSet(labels.Set{"app": "in"}), fields: fields.Everything()}
	for _, tc := range []struct {
		prev, cur *object
		typ, want watch.EventType
	}{
		{nil, obj("in"), watch.Added, watch.Added},
		{nil, obj("out"), watch.Added, ""},
		{obj("in"), obj("in"), watch.Modified, watch.Modified},
		{obj("out"), obj("in"), watch.Modified, watch.Added},
		{obj("in"), obj("out"), watch.Modified, watch.Deleted},
		{obj("out"), obj("out"), watch.Modified, ""},
		{obj("in"), obj("in"), watch.Deleted, watch.Deleted},
		{obj("out"), obj("out"), watch.Deleted, ""},
	} {
		got, relevant := sel.change(&revision{rev: 9, typ: tc.typ, cur: tc.cur, prev: tc.prev}, st.version)
		if !relevant {
			got = change{}
		}
		if got.typ != tc.want {
			t.Errorf("%s from %v to %v: %q, want %q", tc.typ, tc.prev, tc.cur, got.typ, tc.want)
		}
		if tc.want == watch.Deleted && tc.typ == watch.Modified && (got.obj.version != "9" || got.obj.labels["app"] != "in") {
			t.Errorf("left with version %s and labels %v", got.obj.version, got.obj.labels)
		}
	}
}

func FuzzVersion(f *testing.F) {
	f.Add("v-abc", uint64(7))
	f.Add("12", uint64(1<<63))
	f.Fuzz(func(t *testing.T, s string, rev uint64) {
		for _, v := range []versioner{{}, {opaque: true}} {
			v.parse(s) // must not panic
			if back, ok := v.parse(v.format(rev)); !ok || back != rev {
				t.Errorf("%+v: %d → %s → %d", v, rev, v.format(rev), back)
			}
		}
	})
}

func FuzzContinue(f *testing.F) {
	f.Add(continueToken{Version: 3, Last: "a/b", Page: 2}.String())
	f.Add("e30")
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := parseContinue(s); err == nil {
			if again, err := parseContinue(c.String()); err != nil || again != c {
				t.Errorf("%+v: %+v, %v", c, again, err)
			}
		}
	})
}

// FuzzBody decodes bodies of every kind, which must not panic; a protobuf body that is accepted has a kind.
func FuzzBody(f *testing.F) {
	f.Add("application/json", []byte(`{"kind":"Pod","metadata":{"name":"x"}}`))
	f.Add("application/yaml", []byte("a: 1"))
	f.Add("application/vnd.kubernetes.protobuf", appendEnvelope(nil, "v1", "Pod", []byte{10, 3, 10, 1, 'x'}))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		for _, res := range []Resource{Widgets(), DefaultResources()[0]} {
			table := &table{res: res, typed: res.typed()}
			if m, _, err := table.decode(contentType, body); err == nil && m["kind"] == "" {
				t.Errorf("%q was accepted without a kind", body)
			}
			negotiate(contentType, table, false)
		}
		_ = decodeDeleteOptions(contentType, body, &metav1.DeleteOptions{})
	})
}
