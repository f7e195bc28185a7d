package observe

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

var configMapType = reflect.TypeFor[corev1.ConfigMap]()

func watchedOrigin(s Selector) *Origin {
	return &Origin{selector: s, object: configMapType, place: "x.go:1", settings: fixed(nil)}
}

func filterOrigin(s, from Selector, takes reflect.Type) *Origin {
	return &Origin{
		selector: s, place: "x.go:2", filter: func(*cache.Record) bool { return true }, inputs: []input{{from, takes}},
	}
}

func quietObserver(s Selector, takes reflect.Type) *Observer {
	return &Observer{
		selector: s, object: takes, place: "x.go:3", opts: newOptions(nil), log: slog.New(slog.DiscardHandler),
		call: func(context.Context, *store.Event) error { return nil },
	}
}

// The graph of selectors follows filters and ends in cycles.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	maps, some, twice := watchedOrigin("maps"), filterOrigin("some", "maps", metadataType),
		filterOrigin("twice", "some", metadataType)
	left, right := filterOrigin("left", "right", configMapType), filterOrigin("right", "left", configMapType)
	by := quietObserver("twice", metadataType)
	d := &declarations{
		scheme: scheme.Scheme, origins: []*Origin{maps, some, twice, left, right}, observers: []*Observer{by},
	}
	for _, tc := range []struct {
		from, root *Origin
		filtered   bool
	}{
		{maps, maps, false}, {some, maps, true}, {twice, maps, true}, {left, nil, false}, {nil, nil, false},
	} {
		if root, filter := d.resolve(tc.from); root != tc.root || (filter != nil) != tc.filtered {
			t.Errorf("%v resolves to %v", tc.from, root)
		}
	}
	if !d.used(maps) || !d.used(some) || d.used(left) {
		t.Error("a source is used if an observer reaches it")
	}
	if !d.reaches(left, left, nil) || d.reaches(maps, maps, nil) {
		t.Error("a cycle is not recognised")
	}
	if !d.takesMetadata("twice", metadataType) || d.takesMetadata("twice", configMapType) || d.wantsWhole(maps) {
		t.Error("an observer of metadata needs no whole objects")
	}
	d.observers = append(d.observers, quietObserver("maps", configMapType))
	if !d.wantsWhole(maps) {
		t.Error("an observer of whole objects needs them")
	}
}

func TestDeclarationMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason    string
		origins   []*Origin
		observers []*Observer
		want      error
	}{
		{"none", []*Origin{watchedOrigin("a")}, []*Observer{quietObserver("a", configMapType)}, nil},
		{"no source", nil, []*Observer{quietObserver("a", nil)}, ErrNoSource},
		{"no selector", nil, []*Observer{quietObserver("", nil)}, errEmptySelector},
		{"two sources", []*Origin{watchedOrigin("a"), watchedOrigin("a")}, nil, ErrDuplicateSource},
		{
			"another type",
			[]*Origin{watchedOrigin("a")},
			[]*Observer{quietObserver("a", reflect.TypeFor[corev1.Pod]())},
			errTypeMismatch,
		},
		{"a cycle", []*Origin{filterOrigin("a", "a", nil)}, nil, errCycle},
		{"no function", []*Origin{watchedOrigin("a")}, []*Observer{{selector: "a"}}, errNilFunction},
		{
			"a selector that cannot be parsed",
			[]*Origin{{selector: "a", object: configMapType, settings: fixed([]cache.Option{cache.Labels("=")})}},
			nil,
			ErrMalformedSelector,
		},
	} {
		d := &declarations{scheme: scheme.Scheme, origins: tc.origins, observers: tc.observers}
		if err := check(d); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
		}
	}
}

// runOf returns a run of declarations, whose sources are opened by open.
func runOf(d *declarations, degraded bool, open func(attempt int) (*feed, error)) *running {
	attempts := 0
	return &running{
		declared: d, mu: &sync.Mutex{}, degraded: degraded, log: slog.New(slog.DiscardHandler),
		open: func(context.Context, *Origin) (*feed, error) {
			attempts++
			return open(attempts)
		},
	}
}

// A source that cannot be opened is retried if the run is degraded, or if it has started.
func TestRunOpensSources(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for _, tc := range []struct {
		reason   string
		degraded bool
		failures int
		opened   bool
	}{
		{"at once", false, 0, true},
		{"after two failures", true, 2, true},
		{"never", false, 1, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := store.New(store.Options{Namespaced: true, Scheme: scheme.Scheme})
				st.Sink("").Replace().Commit(source.Commit{Version: "1"})
				maps, by := watchedOrigin("maps"), quietObserver("maps", configMapType)
				d := &declarations{scheme: scheme.Scheme, origins: []*Origin{maps}, observers: []*Observer{by}}
				closed := 0
				run := runOf(d, tc.degraded, func(attempt int) (*feed, error) {
					if attempt <= tc.failures {
						return nil, refused
					}
					return &feed{store: st, close: func() { closed++; st.Close() }}, nil
				})
				run.mu.Lock()
				run.begin(t.Context(), nil)
				run.mu.Unlock()
				<-run.tried
				<-time.After(time.Minute) // of fake time: all retries are over
				run.mu.Lock()
				opened, failed := maps.feed != nil, d.openErrors(nil)
				run.mu.Unlock()
				if opened != tc.opened || (len(failed) > 0) == tc.opened {
					t.Errorf("open: %v, errors: %v", opened, failed)
				}
				if opened {
					<-by.Synced()
				}
				run.mu.Lock()
				run.end()
				run.mu.Unlock()
				if !run.stop(t.Context(), time.Second) {
					t.Error("the run does not end")
				}
				run.closeFeeds()
				run.closeFeeds()
				if want := map[bool]int{true: 1}[tc.opened]; closed != want {
					t.Errorf("the source is closed %d times", closed)
				}
				if !opened {
					st.Close()
				}
			})
		})
	}
}

// A source that opens after its last observer was removed is closed at once.
func TestRunClosesUnwantedSource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		maps, by := watchedOrigin("maps"), quietObserver("maps", configMapType)
		d := &declarations{scheme: scheme.Scheme, origins: []*Origin{maps}, observers: []*Observer{by}}
		asked, answer, closed := make(chan struct{}), make(chan struct{}), make(chan struct{})
		run := runOf(d, false, func(int) (*feed, error) {
			close(asked)
			<-answer
			return &feed{close: func() { close(closed) }}, nil
		})
		run.mu.Lock()
		run.begin(t.Context(), nil)
		run.mu.Unlock()
		<-asked
		run.mu.Lock()
		if f, attached := d.remove(by); f != nil || !attached {
			t.Errorf("removed: %v, %v", f, attached)
		}
		if f, attached := d.remove(by); f != nil || attached {
			t.Errorf("removed again: %v, %v", f, attached)
		}
		run.mu.Unlock()
		close(answer)
		<-closed
		run.mu.Lock()
		if maps.active() || len(d.leaving) > 0 {
			t.Error("the source is still active")
		}
		run.end()
		run.mu.Unlock()
		if !run.stop(t.Context(), time.Second) {
			t.Error("the run does not end")
		}
	})
}

// A derived source needs only the functions of its host.
func TestDerivationAlone(t *testing.T) {
	t.Parallel()
	o := &Origin{selector: "derived", object: configMapType, inputs: []input{{"in", configMapType}}}
	var declared []*Observer
	open := derivedFrom[corev1.ConfigMap](func(r *cache.Record) (*corev1.ConfigMap, error) {
		if r.Name() == "none" {
			return nil, nil
		}
		cm := &corev1.ConfigMap{}
		cm.Name = "of-" + r.Name()
		return cm, nil
	})
	f := open(derivedHost{
		origin: o, store: store.Options{Namespaced: true, Scheme: scheme.Scheme},
		observe: func(in input, call func(context.Context, *store.Event) error) *Observer {
			return &Observer{selector: in.selector, call: call, registry: NewRegistry(RegistryOptions{})}
		},
		declare: func(by *Observer) { declared = append(declared, by) },
	})
	defer f.close()
	if len(declared) != 1 || declared[0].selector != "in" {
		t.Fatalf("declared %v", declared)
	}
	inputs := store.New(store.Options{Namespaced: true, Scheme: scheme.Scheme})
	defer inputs.Close()
	inputs.Sink("")
	send := func(e store.Event) {
		t.Helper()
		if err := declared[0].call(t.Context(), &e); err != nil {
			t.Error(err)
		}
	}
	record := func(name string) *cache.Record {
		t.Helper()
		raw := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"n","name":"` + name + `","uid":"` + name +
			`","resourceVersion":"1"}}`
		if _, err := inputs.Put(source.JSON, []byte(raw)); err != nil {
			t.Fatal(err)
		}
		r, ok := inputs.Get(cache.Key{Namespace: "n", Name: name})
		if !ok {
			t.Fatalf("%s is missing", name)
		}
		return r
	}
	a, none := record("a"), record("none")
	send(store.Event{Type: store.Added, Key: a.Key(), Object: a})
	send(store.Event{Type: store.Added, Key: none.Key(), Object: none})
	if f.store.Len() != 0 {
		t.Error("the store is filled before the input is synced")
	}
	send(store.Event{Type: store.Synced})
	if _, ok := f.store.Get(cache.Key{Name: "of-a"}); !ok || f.store.Len() != 1 {
		t.Errorf("the store has %d objects", f.store.Len())
	}
	send(store.Event{Type: store.Deleted, Key: a.Key(), Object: a})
	if f.store.Len() != 0 {
		t.Error("the object remains")
	}
}

// A registry without shards has no slots.
func TestNilGate(t *testing.T) {
	t.Parallel()
	var g *gate
	if err := g.gain(shard.Set{}); err == nil {
		t.Error("it gains slots")
	}
	g.lose(t.Context(), shard.Set{}, func(shard.Set) { t.Error("it loses slots") })
	if g.begin(t.Context()) != t.Context() {
		t.Error("calls have another context")
	}
}

// everyFence is a membership that fences nothing.
type everyFence struct{ shard.Membership }

func (everyFence) Layout() shard.Layout { return shard.Layout{Slots: 2} }

// An observer that has not received the addition of an object, because its slot was lost, receives nothing about the
// object when the slot has returned, until the object is added again.
func TestSkippedAddition(t *testing.T) {
	t.Parallel()
	inputs := store.New(store.Options{Namespaced: true})
	defer inputs.Close()
	inputs.Sink("")
	key := cache.Key{Namespace: "n", Name: "a"}
	raw := `{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"1"}}`
	if _, err := inputs.Put(source.JSON, []byte(raw)); err != nil {
		t.Fatal(err)
	}
	r, ok := inputs.Get(key)
	if !ok {
		t.Fatal("the store has no object")
	}
	opts := newOptions(nil)
	var got []store.EventType
	d := &delivery{
		opts: &opts, ctx: t.Context(), report: func(outcome) {}, gate: newGate(everyFence{}),
		call: func(_ context.Context, e *store.Event) error {
			got = append(got, e.Type)
			return nil
		},
	}
	d.gate.begin(t.Context())
	layout := shard.Layout{Slots: 2}
	moved, err := layout.WithStarts(1, []uint64{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	slot := layout.SlotOf("n", "")
	for _, step := range []struct {
		gain, lose shard.Set
		event      store.EventType
		want       []store.EventType
	}{
		{event: store.Added},
		{gain: layout.Set(slot), event: store.Modified},
		{event: store.Deleted},
		{event: store.Added, want: []store.EventType{store.Added}},
		{event: store.Modified, want: []store.EventType{store.Modified}},
		{lose: layout.Set(slot), event: store.Modified},
		{gain: moved.Set(0), event: store.Modified}, // the other slot has the object now
		{event: store.Left, want: []store.EventType{store.Left}},
		{event: store.Added},
		{gain: moved.Set(1), event: store.Modified},
		{event: store.Left},
		{event: store.Added, want: []store.EventType{store.Added}},
	} {
		if !step.gain.IsEmpty() {
			if err := d.gate.gain(step.gain); err != nil {
				t.Fatal(err)
			}
		}
		if !step.lose.IsEmpty() {
			d.gate.lose(t.Context(), step.lose, func(shard.Set) {})
		}
		got = nil
		if d.handle(&store.Event{Type: step.event, Key: key, Object: r}); !slices.Equal(got, step.want) {
			t.Errorf("of %v the observer receives %v, want %v", step.event, got, step.want)
		}
	}
}

// A snapshot does not change with the declarations.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	maps, by := watchedOrigin("maps"), quietObserver("maps", configMapType)
	lost := quietObserver("nowhere", nil)
	d := &declarations{scheme: scheme.Scheme, origins: []*Origin{maps}, observers: []*Observer{by, lost}}
	s := snapshotOf(d)
	by.failure, maps.err = errors.New("later"), errors.New("later")
	d.observers = nil
	got := s.describe("c")
	if len(got.Sources) != 1 || got.Sources[0].Error != "" || got.Sources[0].Running {
		t.Fatalf("sources: %+v", got.Sources)
	}
	in := got.Sources[0].Observers
	if len(in) != 1 || in[0].Stopped != "" || in[0].At != "x.go:3" || in[0].Cluster != "c" {
		t.Errorf("observers: %+v", in)
	}
	if len(got.Unmatched) != 1 || !slices.Equal(got.Unmatched[0].Selector, []string{"nowhere"}) {
		t.Errorf("unmatched: %+v", got.Unmatched)
	}
}
