package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/shard"
)

// twoSlots shards by namespace: here is in slot 0, and there in slot 1.
var (
	twoSlots = shard.Layout{Slots: 2}
	here     = namespaceOf(0)
	there    = namespaceOf(1)
)

func namespaceOf(slot int) string {
	for i := 0; ; i++ {
		if ns := fmt.Sprint("n", i); twoSlots.SlotOf(ns, "") == slot {
			return ns
		}
	}
}

func at(ns, uid string, version int) thing {
	return thing{ns: ns, name: "x", uid: uid, version: version}
}

// sharded is a store of some slots with its sink.
type sharded struct {
	t testing.TB
	*store.Store
	sink source.Sink
}

func newSharded(t testing.TB, slots ...int) *sharded {
	s := &sharded{t: t, Store: newStore(t, store.Options{Namespaced: true, Shard: "namespace/2"})}
	s.sink = s.Sink("")
	s.hold(slots...)
	return s
}

func (s *sharded) hold(slots ...int) { s.sink.(source.Sharded).Hold(twoSlots.Set(slots...)) }

func (s *sharded) gain(slot, version int, things ...thing) {
	s.t.Helper()
	r := s.sink.(source.Sharded).Gain(twoSlots.Set(slot))
	for _, x := range things {
		if err := r.Put(x.object()); err != nil {
			s.t.Fatal(err)
		}
	}
	if missing, known := r.Missing(); missing > 0 || known > 0 {
		s.t.Errorf("a gain misses %d of %d", missing, known)
	}
	r.Commit(source.Commit{Version: fmt.Sprint(version)})
}

// TestLeftIsFolded delivers one history to two subscribers: one takes each event, and the other takes all events at
// once.
func TestLeftIsFolded(t *testing.T) {
	t.Parallel()
	leave := func(s *sharded) { s.hold(0) }
	back := func(version int, things ...thing) func(*sharded) {
		return func(s *sharded) {
			s.hold(0, 1)
			s.gain(1, version, things...)
		}
	}
	change := func(typ source.ChangeType, x thing) func(*sharded) {
		return func(s *sharded) { apply(s.t, s.sink, typ, x) }
	}
	for _, tc := range []struct {
		reason string
		given  []thing // before the subscribers stop taking
		steps  []func(*sharded)
		quick  []string // without the events of given
		slow   []string
	}{
		{
			"It leaves.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){leave},
			[]string{"LEFT @5<5"},
			[]string{"LEFT @5<5"},
		},
		{
			"An object changes and leaves.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){change(source.Modified, at(there, "u1", 11)), leave},
			[]string{"MODIFIED @11<5", "LEFT @11<11"},
			[]string{"LEFT @11<5"},
		},
		{
			"An object that was never delivered leaves without an event.",
			nil,
			[]func(*sharded){change(source.Added, at(there, "u1", 11)), leave},
			[]string{"ADDED @11", "LEFT @11<11"},
			nil,
		},
		{
			"An object leaves and comes back unchanged: another replica may have worked on it.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){leave, back(12, at(there, "u1", 5))},
			[]string{"LEFT @5<5", "ADDED @5 initial"},
			[]string{"LEFT @5<5", "ADDED @5 initial"},
		},
		{
			"An object leaves, comes back and changes.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){leave, back(12, at(there, "u1", 11)), change(source.Modified, at(there, "u1", 13))},
			[]string{"LEFT @5<5", "ADDED @11 initial", "MODIFIED @13<11"},
			[]string{"LEFT @5<5", "ADDED @13 initial"},
		},
		{
			"An object leaves and another one of its name comes back.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){leave, back(12, at(there, "u2", 11))},
			[]string{"LEFT @5<5", "ADDED @11 initial"},
			[]string{"LEFT @5<5", "ADDED @11 initial"},
		},
		{
			"An object is deleted and re-created, and the new one leaves.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){
				change(source.Deleted, at(there, "u1", 11)), change(source.Added, at(there, "u2", 12)), leave,
			},
			[]string{"DELETED @11<5", "ADDED @12", "LEFT @12<12"},
			[]string{"DELETED @11<5"},
		},
		{
			"An object comes and leaves.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){leave, back(12, at(there, "u1", 5)), leave},
			[]string{"LEFT @5<5", "ADDED @5 initial", "LEFT @5<5"},
			[]string{"LEFT @5<5"},
		},
		{
			"An object leaves, comes back and is deleted here: the deletion is delivered.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){leave, back(12, at(there, "u1", 5)), change(source.Deleted, at(there, "u1", 13))},
			[]string{"LEFT @5<5", "ADDED @5 initial", "DELETED @13<5"},
			[]string{"DELETED @13<5"},
		},
		{
			"An object leaves, and another one of its name comes back and is deleted.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){leave, back(12, at(there, "u2", 11)), change(source.Deleted, at(there, "u2", 13))},
			[]string{"LEFT @5<5", "ADDED @11 initial", "DELETED @13<11"},
			[]string{"LEFT @5<5"},
		},
		{
			"All slots leave.",
			[]thing{at(there, "u1", 5)},
			[]func(*sharded){func(s *sharded) { s.hold() }},
			[]string{"LEFT @5<5"},
			[]string{"LEFT @5<5"},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := newSharded(t, 0, 1)
			list(t, s.sink, 10, tc.given...)
			quick, slow := s.Subscribe(store.SubscribeOptions{}), s.Subscribe(store.SubscribeOptions{})
			drain(quick)
			drain(slow)
			var got []store.Event
			for _, step := range tc.steps {
				step(s)
				got = append(got, drain(quick)...)
			}
			if diff := cmp.Diff(tc.quick, keyless(got)); diff != "" {
				t.Errorf("one by one (-want +got):\n%s", diff)
			}
			store.Fold(slow, 0)
			if diff := cmp.Diff(tc.slow, keyless(drain(slow))); diff != "" {
				t.Errorf("folded (-want +got):\n%s", diff)
			}
		})
	}
}

// keyless is summary without the key, which is always the same.
func keyless(events []store.Event) (out []string) {
	for _, text := range summary(events) {
		text = replaceKey(text)
		out = append(out, text)
	}
	return out
}

func replaceKey(text string) string {
	for _, ns := range []string{here, there} {
		key := " " + ns + "/x@"
		for i := 0; i+len(key) <= len(text); i++ {
			if text[i:i+len(key)] == key {
				return text[:i] + " @" + text[i+len(key):]
			}
		}
	}
	return text
}

// TestLeftPassesFilters: an object outside a subscriber's filter leaves without an event, and never as a deletion.
func TestLeftPassesFilters(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 0, 1)
	red, blue := at(there, "u1", 5), thing{ns: there, name: "y", uid: "u2", version: 6}
	red.labels = `"color":"red"`
	list(t, s.sink, 10, red, blue)
	c := s.Subscribe(store.SubscribeOptions{Filter: func(r *store.Record) bool {
		color, _ := r.Label("color")
		return color == "red"
	}})
	drain(c)
	s.hold(0)
	if diff := cmp.Diff([]string{"LEFT @5<5"}, keyless(drain(c))); diff != "" {
		t.Error(diff)
	}
}

// TestOwnWritesOfSlots overlays own writes in the held slots without asking the server, and no others. This holds also
// if the answer comes after the slot has left or come back.
func TestOwnWritesOfSlots(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 0)
	list(t, s.sink, 10, at(here, "u1", 5))
	if !s.Decides() {
		t.Error("the store does not know the slot of an object")
	}
	put := func(x thing, want store.PutResult) {
		t.Helper()
		if got, err := s.Put(source.JSON, x.json()); got != want || err != nil {
			t.Errorf("%s/%s@%d: %s %v, want %s", x.ns, x.name, x.version, got, err, want)
		}
	}
	get := func(ns, want string) {
		t.Helper()
		version := ""
		if r, ok := s.Get(store.Key{Namespace: ns, Name: "x"}); ok {
			version = r.Version()
		}
		if version != want {
			t.Errorf("%s is at version %q, want %q", ns, version, want)
		}
	}
	put(at(here, "u1", 11), store.Overlaid)
	put(at(there, "u2", 12), store.OutOfScope)
	get(here, "11")
	get(there, "")

	own := store.WriteContext{Owner: "me", Primary: store.Key{Name: "p"}}
	w := s.BeginWrite(store.Key{Namespace: here, Name: "x"}, own)
	s.hold(1) // while the new slot is not listed yet, reads see our write in it
	get(here, "")
	if n := s.OverlayStats().Entries; n != 0 {
		t.Errorf("%d own writes are left", n)
	}
	put(at(there, "u2", 13), store.Overlaid)
	get(there, "13")
	if got, err := w.Done(source.JSON, at(here, "u1", 14).json()); got != store.OutOfScope || err != nil {
		t.Errorf("a late answer: %s %v", got, err)
	}
	get(here, "")
	if got := s.PutDeleted(store.Key{Namespace: here, Name: "x"}, "u1"); got != store.OutOfScope {
		t.Errorf("a late answer to a delete: %s", got)
	}
	s.gain(1, 20, at(there, "u2", 19))
	get(there, "19")

	s.hold(0, 1)
	s.gain(0, 30) // the object was deleted before
	put(at(here, "u1", 29), store.AlreadyKnown)
	get(here, "")
	put(at(here, "u3", 31), store.Overlaid)
	get(here, "31")
	if n := store.LedgerSize(s.Store); n != 0 {
		t.Errorf("%d own writes are remembered", n)
	}
}

// TestWaitsOfSlots: a store without slots misses nothing, and a wait covers the slots gained since.
func TestWaitsOfSlots(t *testing.T) {
	t.Parallel()
	s := newSharded(t)
	if !s.HasSynced() {
		t.Error("not synced though there is nothing to list")
	}
	c := s.Subscribe(store.SubscribeOptions{})
	if diff := cmp.Diff([]string{"SYNCED"}, summary(drain(c))); diff != "" {
		t.Error(diff)
	}
	if err := s.WaitFor(t.Context(), "100"); err != nil {
		t.Error(err)
	}
	s.hold(0)
	if s.Covers("", "1") || s.Covered(here) || s.Covered("") {
		t.Error("a slot that was not listed is covered")
	}
	list(t, s.sink, 10, at(here, "u1", 5))
	if diff := cmp.Diff([]string{"ADDED @5 initial"}, keyless(drain(c))); diff != "" {
		t.Error(diff)
	}
	if !s.Covers("", "10") || !s.Covered(here) || s.Covered(there) || s.Covered("") {
		t.Error("the listed slot is not covered, or more is")
	}
	s.hold(0, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.WaitFor(ctx, "10"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait while a slot is being listed: %v", err)
	}
	s.gain(1, 12, at(there, "u2", 11))
	if err := s.WaitFor(t.Context(), "10"); err != nil {
		t.Error(err)
	}
	if s.Version() != "10" || !s.Covered("") || s.Complete() {
		t.Errorf("version %s", s.Version())
	}
	if held, ok := s.Held(); !ok || !held.IsAll() {
		t.Errorf("held are %s", held)
	}
	apply(t, s.sink, source.Modified, at(here, "u1", 11)) // the scope resumes at its former version
	if diff := cmp.Diff([]string{"ADDED @11 initial", "MODIFIED @11<5"}, keyless(drain(c))); diff != "" {
		t.Error(diff)
	}
	if s.Lacks(here, "") {
		t.Error("a held slot counts as missing")
	}
	s.hold(1)
	if !s.Lacks(here, "u1") || s.Lacks(there, "u2") {
		t.Error("a missing slot is not reported")
	}
}

// TestQuarantineLeaves: an unreadable object is reported while its slot is held.
func TestQuarantineLeaves(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 0, 1)
	list(t, s.sink, 10)
	for _, ns := range []string{here, there, ""} {
		s.sink.Quarantine(source.Quarantined{Namespace: ns, Name: "x", UID: "u", Version: "11", Err: errors.New("unread")})
	}
	s.hold(0)
	if got := s.Quarantined(); len(got) != 2 {
		t.Errorf("quarantined are %v", got)
	}
	s.hold()
	if got := s.Quarantined(); len(got) != 0 {
		t.Errorf("quarantined are %v", got)
	}
}

// TestSlotsAreNotSaved: a store of slots is not saved, since the next run may hold others.
func TestSlotsAreNotSaved(t *testing.T) {
	t.Parallel()
	s := newSharded(t, 0)
	if err := s.Save(t.TempDir(), "id"); !errors.Is(err, store.ErrShardNotSaved) {
		t.Errorf("error %v", err)
	}
}

// TestSlotsOfACache: requests with the same Sharding share a store, whatever slots it holds.
func TestSlotsOfACache(t *testing.T) {
	t.Parallel()
	c, err := store.NewCache(store.CacheOptions{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	one, two := source.NewSharding(twoSlots), source.NewSharding(twoSlots)
	open := func(o ...source.Option) *store.Handle {
		t.Helper()
		h, err := c.Open(store.Request{
			Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true, Options: o,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Release)
		return h
	}
	first := open(source.ShardWith(one))
	if err := one.Set(twoSlots.Set(1)); err != nil {
		t.Fatal(err)
	}
	fixed := open(source.Shard(twoSlots.Set(0)))
	for _, tc := range []struct {
		reason string
		other  *store.Handle
		same   bool
	}{
		{"The same Sharding.", open(source.ShardWith(one)), true},
		{"Another one.", open(source.ShardWith(two)), false},
		{"All objects.", open(), false},
		{"Fixed slots.", fixed, false},
	} {
		if same := tc.other.Store == first.Store; same != tc.same {
			t.Errorf("%s The store is the same: %t", tc.reason, same)
		}
	}
	again, other := open(source.Shard(twoSlots.Set(0))), open(source.Shard(twoSlots.Set(1)))
	if again.Store != fixed.Store || other.Store == fixed.Store {
		t.Error("equal fixed slots have two stores, or different ones share a store")
	}
	names := map[string]bool{}
	for _, st := range c.Stores(schema.GroupVersionResource{}) {
		names[st.Options().Shard] = true
	}
	want := map[string]bool{
		"": true, "namespace/2": true, "namespace/2 (2)": true, "namespace/2: 0": true, "namespace/2: 1": true,
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// TestWaitForSlots: a wait ends when its slots are listed, in any order.
func TestWaitForSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, waitForSlots)
}

func waitForSlots(t *testing.T) {
	s := newSharded(t)
	wait := func(slots ...int) <-chan error {
		done := make(chan error, 1)
		go func() { done <- s.WaitSlots(t.Context(), twoSlots.Set(slots...)) }()
		return done
	}
	if err := s.WaitSlots(t.Context(), twoSlots.Set()); err != nil {
		t.Error(err)
	}
	both, first := wait(0, 1), wait(0)
	s.hold(0, 1)
	s.gain(1, 5, at(there, "u1", 5))
	synctest.Wait() // both goroutines wait
	select {
	case err := <-both:
		t.Errorf("a wait for slots that are not listed returned %v", err)
	case err := <-first:
		t.Errorf("a wait for a slot that is not listed returned %v", err)
	default:
	}
	s.gain(0, 6)
	for _, done := range []<-chan error{both, first} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	s.hold(0)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := s.WaitSlots(ctx, twoSlots.Set(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait for a slot that is not held returned %v", err)
	}
	lost := wait(1)
	s.Close()
	if err := <-lost; !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
