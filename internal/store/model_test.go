package store_test

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

// TestModel runs random schedules of changes, lists, epochs and subscribers against a linear model.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		defer m.s.Close()
		rt.Repeat(map[string]func(*rapid.T){
			"upsert":    m.upsert,
			"delete":    m.remove,
			"recreate":  m.recreate,
			"replay":    m.replay,
			"relist":    func(rt *rapid.T) { m.relist(rt, false) },
			"epoch":     func(rt *rapid.T) { m.relist(rt, true) },
			"abort":     m.abort,
			"bookmark":  m.bookmark,
			"subscribe": m.subscribe,
			"take":      m.take,
			"close":     m.closeOne,
			"":          m.check,
		})
		m.rest(rt)
	})
}

type model struct {
	s       *store.Store
	sink    source.Sink
	server  map[store.Key]thing // the objects of the server
	known   map[store.Key]thing // the objects that were applied to the store
	old     []thing             // former versions, to replay
	version int
	uids    int
	synced  bool
	subs    []*subscriber
}

type subscriber struct {
	c      *store.Cursor
	events []store.Event
}

func newModel(rt *rapid.T) *model {
	m := &model{
		s: store.New(store.Options{Namespaced: true}), server: map[store.Key]thing{}, known: map[store.Key]thing{},
		version: 100,
	}
	m.sink = m.s.Sink("")
	err := m.s.AddIndex("color", func(r *store.Record) ([]string, error) {
		v, _ := r.Label("color")
		if v == "red" {
			panic("an index function that does not like red")
		}
		return []string{v}, nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	return m
}

var colors = []string{"red", "green", "blue"}

func (m *model) pick(rt *rapid.T) store.Key {
	return store.Key{
		Namespace: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "ns"),
		Name:      rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "name"),
	}
}

func (m *model) make(rt *rapid.T, k store.Key, fresh bool) thing {
	m.version++
	x, ok := m.server[k]
	if !ok || fresh {
		m.uids++
		x = thing{ns: k.Namespace, name: k.Name, uid: fmt.Sprintf("00000000-0000-4000-8000-%012d", m.uids)}
	}
	x.version = m.version
	x.labels = fmt.Sprintf(`"color":%q`, rapid.SampledFrom(colors).Draw(rt, "color"))
	x.more = fmt.Sprintf(`,"data":{"n":"%d"}`, m.version)
	return x
}

func (m *model) apply(rt *rapid.T, typ source.ChangeType, x thing) {
	if !m.synced {
		return // the first list will include the change
	}
	if err := m.sink.Apply(typ, x.object()); err != nil {
		rt.Fatal(err)
	}
	m.old = append(m.old, x)
	if typ == source.Deleted {
		delete(m.known, x.key())
	} else {
		m.known[x.key()] = x
	}
}

func (m *model) upsert(rt *rapid.T) {
	k := m.pick(rt)
	x := m.make(rt, k, false)
	_, had := m.server[k]
	m.server[k] = x
	m.apply(rt, map[bool]source.ChangeType{false: source.Added, true: source.Modified}[had], x)
}

func (m *model) remove(rt *rapid.T) {
	k := m.pick(rt)
	x, had := m.server[k]
	if !had {
		return
	}
	m.version++
	x.version = m.version
	delete(m.server, k)
	m.apply(rt, source.Deleted, x)
}

// recreate skips the deletion event: the store sees only the new incarnation.
func (m *model) recreate(rt *rapid.T) {
	k := m.pick(rt)
	x := m.make(rt, k, true)
	m.server[k] = x
	m.apply(rt, source.Added, x)
}

// replay sends an earlier version again.
func (m *model) replay(rt *rapid.T) {
	if len(m.old) == 0 {
		return
	}
	x := rapid.SampledFrom(m.old).Draw(rt, "old")
	typ := rapid.SampledFrom([]source.ChangeType{source.Added, source.Modified}).Draw(rt, "type")
	if err := m.sink.Apply(typ, x.object()); err != nil {
		rt.Fatal(err)
	}
}

func (m *model) relist(rt *rapid.T, epoch bool) {
	if epoch {
		m.version -= rapid.IntRange(0, 20).Draw(rt, "back")
		m.version = max(m.version, 10)
		for k := range m.server { // a restored backup has lower versions, or equal ones with other content
			if rapid.Bool().Draw(rt, "restored") {
				x := m.server[k]
				x.version = min(x.version, m.version)
				x.more = `,"data":{"restored":"yes"}`
				m.server[k] = x
			} else {
				delete(m.server, k)
			}
		}
		m.old = nil
	}
	for range rapid.IntRange(0, 3).Draw(rt, "unseen") { // changes without a watch
		k := m.pick(rt)
		switch rapid.IntRange(0, 2).Draw(rt, "what") {
		case 0:
			m.server[k] = m.make(rt, k, false)
		case 1:
			m.server[k] = m.make(rt, k, true)
		default:
			m.version++
			delete(m.server, k)
		}
	}
	r := m.sink.Replace()
	m.put(rt, r)
	r.Commit(source.Commit{Version: fmt.Sprint(m.version), Epoch: epoch, Reason: "test"})
	m.known, m.synced = maps.Clone(m.server), true
}

func (m *model) put(rt *rapid.T, r source.Replacement) {
	for _, x := range m.server {
		if err := r.Put(x.object()); err != nil {
			rt.Fatal(err)
		}
	}
	missing := 0
	for k := range m.known {
		if _, ok := m.server[k]; !ok {
			missing++
		}
	}
	if got, known := r.Missing(); got != missing || known != len(m.known) {
		rt.Fatalf("missing %d of %d, want %d of %d", got, known, missing, len(m.known))
	}
}

func (m *model) abort(rt *rapid.T) {
	r := m.sink.Replace()
	for k, x := range m.server {
		if rapid.Bool().Draw(rt, "put"+k.String()) {
			if err := r.Put(x.object()); err != nil {
				rt.Fatal(err)
			}
		}
	}
	r.Abort()
}

func (m *model) bookmark(rt *rapid.T) {
	if m.synced {
		m.sink.Bookmark(fmt.Sprint(m.version))
	}
}

func (m *model) subscribe(rt *rapid.T) {
	if len(m.subs) < 5 {
		m.subs = append(m.subs, &subscriber{c: m.s.Subscribe(store.SubscribeOptions{})})
	}
}

func (m *model) take(rt *rapid.T) {
	if len(m.subs) == 0 {
		return
	}
	sub := rapid.SampledFrom(m.subs).Draw(rt, "subscriber")
	if rapid.Bool().Draw(rt, "slow") {
		store.Fold(sub.c, uint64(rapid.IntRange(0, 3).Draw(rt, "left")))
	}
	sub.events = append(sub.events, sub.c.Take(rapid.IntRange(1, 5).Draw(rt, "max"))...)
}

func (m *model) closeOne(rt *rapid.T) {
	if len(m.subs) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.subs)-1).Draw(rt, "subscriber")
	m.subs[i].c.Close()
	if got := m.subs[i].c.Take(1); len(got) != 0 {
		rt.Fatalf("a closed cursor gave %v", got)
	}
	m.subs = slices.Delete(m.subs, i, i+1)
}

// check compares the store with the model (W4), and the events of each subscriber with the invariants (W1, W2, W3, W6).
func (m *model) check(rt *rapid.T) {
	snap := m.s.Snapshot()
	got := map[string]string{}
	for r := range snap.All() {
		got[r.Key().String()] = r.Version() + string(r.Raw())
		if again, ok := m.s.Get(r.Key()); !ok || again != r {
			rt.Fatalf("get and list differ for %s", r.Key())
		}
	}
	want := map[string]string{}
	for k, x := range m.known {
		want[k.String()] = fmt.Sprint(x.version) + string(x.json())
	}
	if d := cmp.Diff(want, got); d != "" {
		rt.Fatalf("store (+) differs from the applied events (-):\n%s", d)
	}
	for _, color := range colors {
		wantKeys := []string{}
		for k, x := range m.known {
			if x.labels == fmt.Sprintf(`"color":%q`, color) {
				wantKeys = append(wantKeys, k.String())
			}
		}
		sort.Strings(wantKeys)
		byLabel := keysOf(snap.Index(store.IndexLabel, "color="+color))
		bySelector := keysOf(snap.Select(labels.SelectorFromSet(labels.Set{"color": color})))
		byIndex := keysOf(snap.Index("color", color))
		if d := cmp.Diff(wantKeys, byLabel); d != "" {
			rt.Fatalf("label index: %s", d)
		}
		if d := cmp.Diff(wantKeys, bySelector); d != "" {
			rt.Fatalf("selector: %s", d)
		}
		if color == "red" {
			if n := len(snap.IndexErrors("color")); n != len(wantKeys) {
				rt.Fatalf("%d index errors, want %d", n, len(wantKeys))
			}
			wantKeys = []string{}
		}
		if d := cmp.Diff(wantKeys, byIndex); d != "" {
			rt.Fatalf("index of %s: %s", color, d)
		}
	}
	for i, sub := range m.subs {
		if _, err := watchtest.CheckEvents(sub.events); err != nil {
			rt.Fatalf("subscriber %d: %v\n%v", i, err, summary(sub.events))
		}
		if lag := sub.c.Lag(); lag > 6+3+1100 {
			rt.Fatalf("W10: lag %d", lag)
		}
	}
}

// rest drains every subscriber, whose folded events must equal the state of the store.
func (m *model) rest(rt *rapid.T) {
	for i, sub := range m.subs {
		sub.events = append(sub.events, drain(sub.c)...)
		folded, err := watchtest.CheckEvents(sub.events)
		if err != nil {
			rt.Fatalf("subscriber %d: %v\n%v", i, err, summary(sub.events))
		}
		for r := range m.s.Snapshot().All() {
			if folded[r.Key()] != r {
				rt.Fatalf("subscriber %d: W4: %s differs from the store\n%v", i, r.Key(), summary(sub.events))
			}
			delete(folded, r.Key())
		}
		if len(folded) > 0 {
			rt.Fatalf("subscriber %d: W4: still has %v", i, folded)
		}
		if m.synced && !slices.ContainsFunc(sub.events, func(e store.Event) bool { return e.Type == store.Synced }) {
			rt.Fatalf("subscriber %d: W6: no SYNCED", i)
		}
		sub.c.Close()
	}
}

func keysOf(seq func(func(*store.Record) bool)) []string {
	out := []string{}
	for r := range seq {
		out = append(out, r.Key().String())
	}
	sort.Strings(out)
	return out
}
