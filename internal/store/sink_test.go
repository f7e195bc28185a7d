package store_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/internal/watchtest"
)

func obj(name, uid string, version int) thing {
	return thing{ns: "ns", name: name, uid: uid, version: version}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	a := func(version int) thing { return obj("a", "u1", version) }
	tests := []struct {
		reason string
		do     func(t *testing.T, sink source.Sink)
		want   []string
	}{
		{
			"listed objects are initial, then SYNCED", func(t *testing.T, sink source.Sink) { list(t, sink, 9, a(5)) },
			[]string{"ADDED ns/a@5 initial", "SYNCED"},
		},
		{"a change has the previous state", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5))
			apply(t, sink, source.Modified, a(10))
		}, []string{"ADDED ns/a@5 initial", "SYNCED", "MODIFIED ns/a@10<5"}},
		{"a MODIFIED of an unknown object is an addition", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9)
			apply(t, sink, source.Modified, a(10))
		}, []string{"SYNCED", "ADDED ns/a@10"}},
		{"an ADDED of a known object is a modification", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5))
			apply(t, sink, source.Added, a(10))
		}, []string{"ADDED ns/a@5 initial", "SYNCED", "MODIFIED ns/a@10<5"}},
		{"a deletion has the last state, of the version of the deletion", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5))
			apply(t, sink, source.Deleted, a(10))
		}, []string{"ADDED ns/a@5 initial", "SYNCED", "DELETED ns/a@10<5"}},
		{"a deletion of an unknown object has no event", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9)
			apply(t, sink, source.Deleted, a(10))
		}, []string{"SYNCED"}},
		{"a deletion may have the version of the last change (old servers)", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5))
			apply(t, sink, source.Deleted, a(5))
		}, []string{"ADDED ns/a@5 initial", "SYNCED", "DELETED ns/a@5<5"}},
		{"another uid is a deletion and an addition", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5))
			apply(t, sink, source.Added, obj("a", "u2", 11))
		}, []string{"ADDED ns/a@5 initial", "SYNCED", "DELETED ns/a@5<5 inferred", "ADDED ns/a@11"}},
		{"a replay is suppressed, also of an object deleted since", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5))
			apply(t, sink, source.Modified, a(10))
			apply(t, sink, source.Modified, a(10))
			apply(t, sink, source.Modified, a(7))
			apply(t, sink, source.Deleted, a(8))
			apply(t, sink, source.Deleted, a(11))
			apply(t, sink, source.Modified, a(10))
		}, []string{"ADDED ns/a@5 initial", "SYNCED", "MODIFIED ns/a@10<5", "DELETED ns/a@11<10"}},
		{"a relist delivers the difference alone", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5), obj("b", "u2", 6), obj("c", "u3", 7), obj("d", "u4", 8))
			list(t, sink, 20, a(5), obj("b", "u2", 15), obj("d", "u5", 16), obj("e", "u6", 17))
		}, []string{
			"ADDED ns/a@5 initial", "ADDED ns/b@6 initial", "ADDED ns/c@7 initial", "ADDED ns/d@8 initial", "SYNCED",
			"DELETED ns/c@7<7 inferred", "MODIFIED ns/b@15<6", "DELETED ns/d@8<8 inferred", "ADDED ns/d@16", "ADDED ns/e@17",
		}},
		{"an object deleted before the end of the initial events is missing", func(t *testing.T, sink source.Sink) {
			r := sink.Replace()
			for _, x := range []thing{a(5), obj("b", "u2", 6)} {
				if err := r.Put(x.object()); err != nil {
					t.Fatal(err)
				}
			}
			r.Remove(a(7).object())
			r.Commit(source.Commit{Version: "9"})
		}, []string{"ADDED ns/b@6 initial", "SYNCED"}},
		{
			"the newer of two in one list counts", func(t *testing.T, sink source.Sink) { list(t, sink, 9, a(5), a(6)) },
			[]string{"ADDED ns/a@6 initial", "SYNCED"},
		},
		{"an aborted list changes nothing", func(t *testing.T, sink source.Sink) {
			list(t, sink, 9, a(5))
			r := sink.Replace()
			if err := r.Put(obj("b", "u2", 11).object()); err != nil {
				t.Fatal(err)
			}
			r.Abort()
		}, []string{"ADDED ns/a@5 initial", "SYNCED"}},
		{"an epoch comes once, before lower versions, and compares content", func(t *testing.T, sink source.Sink) {
			x := a(50)
			list(t, sink, 90, x, obj("b", "u2", 60))
			x.more = `,"data":{"k":"restored"}`
			r := sink.Replace()
			for _, o := range []thing{x, obj("b", "u2", 40)} {
				if err := r.Put(o.object()); err != nil {
					t.Fatal(err)
				}
			}
			r.Commit(source.Commit{Version: "70", Epoch: true, Reason: "restored"})
			apply(t, sink, source.Modified, obj("b", "u2", 71))
		}, []string{
			"ADDED ns/a@50 initial", "ADDED ns/b@60 initial", "SYNCED", "EPOCH", "MODIFIED ns/a@50<50",
			"MODIFIED ns/b@40<60", "MODIFIED ns/b@71<40",
		}},
		{"versions that are no numbers are only compared for equality", func(t *testing.T, sink source.Sink) {
			r := sink.Replace()
			r.Commit(source.Commit{Version: "zzz"})
			for _, v := range []string{"b", "b", "a"} {
				raw := []byte(`{"metadata":{"namespace":"ns","name":"a","uid":"u1","resourceVersion":"` + v + `"}}`)
				if err := sink.Apply(source.Modified, object(raw)); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"SYNCED", "ADDED ns/a@b", "MODIFIED ns/a@a<b"}},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, store.Options{})
			fast := s.Subscribe(store.SubscribeOptions{})
			tc.do(t, s.Sink(""))
			events := drain(fast)
			if d := cmp.Diff(tc.want, sortInitial(summary(events))); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			folded, err := watchtest.CheckEvents(events)
			if err != nil {
				t.Error(err)
			}
			if len(folded) != s.Len() {
				t.Errorf("events add up to %d objects, the store has %d", len(folded), s.Len())
			}
		})
	}
}

// sortInitial sorts the initial events, whose order is undefined.
func sortInitial(events []string) []string {
	n := 0
	for n < len(events) && len(events[n]) > 8 && events[n][len(events[n])-8:] == " initial" {
		n++
	}
	for i := range n {
		for j := i + 1; j < n; j++ {
			if events[j] < events[i] {
				events[i], events[j] = events[j], events[i]
			}
		}
	}
	return events
}

func TestUnchangedRelistKeepsObjects(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	var things []thing
	for i := range 100 {
		things = append(things, obj(string(rune('a'+i%26))+string(rune('a'+i/26)), "u", 5+i))
	}
	list(t, sink, 200, things...)
	before, _ := s.Get(things[0].key())
	c := s.Subscribe(store.SubscribeOptions{From: store.FromNow})
	drain(c)
	list(t, sink, 300, things...)
	if got := summary(drain(c)); len(got) != 0 {
		t.Errorf("events %v", got)
	}
	if after, _ := s.Get(things[0].key()); after != before {
		t.Error("an unchanged object was replaced")
	}
	if s.Version() != "300" {
		t.Errorf("version %s, want that of the list", s.Version())
	}
}

func TestRefusedObjects(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("ns")
	for reason, x := range map[string]thing{
		"no name": {ns: "ns", uid: "u"}, "foreign namespace": {ns: "other", name: "a", uid: "u", version: 3},
	} {
		if err := sink.Apply(source.Added, x.object()); err == nil {
			t.Errorf("%s: Apply accepted it", reason)
		}
		if err := sink.Replace().Put(x.object()); err == nil {
			t.Errorf("%s: Put accepted it", reason)
		}
	}
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	c := s.Subscribe(store.SubscribeOptions{})
	sink := s.Sink("")
	list(t, sink, 9, obj("a", "u1", 5))
	drain(c)
	r := sink.Replace() // the next list cannot read a
	bad := errors.New("bad")
	sink.Quarantine(source.Quarantined{Namespace: "ns", Name: "a", UID: "u1", Version: "12", Err: bad})
	r.Commit(source.Commit{Version: "20"})
	if _, ok := s.Get(store.Key{Namespace: "ns", Name: "a"}); !ok {
		t.Error("an object that cannot be read any more was deleted")
	}
	events := drain(c)
	if len(events) != 1 || events[0].Type != store.QuarantinedObject || !errors.Is(events[0].Err, bad) ||
		events[0].Version != "12" {
		t.Errorf("events %v, want one QUARANTINED", summary(events))
	}
	if q := s.Quarantined(); len(q) != 1 || q[0].Name != "a" {
		t.Errorf("quarantined %v", q)
	}
	late := drain(s.Subscribe(store.SubscribeOptions{}))
	if len(late) != 3 || late[0].Type != store.Added || late[1].Type != store.QuarantinedObject ||
		!errors.Is(late[1].Err, bad) || late[2].Type != store.Synced {
		t.Errorf("a later subscriber gets %v, want ADDED, QUARANTINED, SYNCED", summary(late))
	}
	if now := drain(s.Subscribe(store.SubscribeOptions{From: store.FromNow})); len(now) != 1 {
		t.Errorf("a subscriber to changes alone gets %v", summary(now))
	}
	apply(t, sink, source.Modified, obj("a", "u1", 30))
	if q := s.Quarantined(); len(q) != 0 {
		t.Errorf("still quarantined after it could be read: %v", q)
	}
	if late := drain(s.Subscribe(store.SubscribeOptions{})); len(late) != 2 {
		t.Errorf("a subscriber after that gets %v", summary(late))
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{Namespaced: true})
	c := s.Subscribe(store.SubscribeOptions{})
	one, two, three := s.Sink("one"), s.Sink("two"), s.Sink("three")
	list(t, one, 9, thing{ns: "one", name: "a", uid: "u1", version: 5})
	list(t, two, 12, thing{ns: "two", name: "a", uid: "u2", version: 6})
	if s.HasSynced() {
		t.Error("synced although a scope is missing")
	}
	three.Report(source.Status{Phase: source.Degraded, Reason: source.ReasonForbidden})
	if !s.HasSynced() {
		t.Error("a scope that may not be listed keeps the others from being synced")
	}
	want := []string{"ADDED one/a@5 initial", "ADDED two/a@6 initial", "SYNCED"}
	if d := cmp.Diff(want, sortInitial(summary(drain(c)))); d != "" {
		t.Error(d)
	}
	list(t, one, 20)
	if d := cmp.Diff([]string{"DELETED one/a@5<5 inferred"}, summary(drain(c))); d != "" {
		t.Errorf("a list of one namespace (-want +got):\n%s", d)
	}
	s.DropScope("two")
	if d := cmp.Diff([]string{"DELETED two/a@6<6 inferred"}, summary(drain(c))); d != "" {
		t.Errorf("a namespace that is no longer watched (-want +got):\n%s", d)
	}
	if err := two.Apply(source.Added, thing{ns: "two", name: "b", uid: "u3", version: 30}.object()); err != nil ||
		s.Len() != 0 {
		t.Error("a dropped scope still fills the store")
	}
	list(t, s.Sink("two"), 31, thing{ns: "two", name: "c", uid: "u4", version: 30})
	if d := cmp.Diff([]string{"ADDED two/c@30"}, summary(drain(c))); d != "" {
		t.Errorf("a namespace that came back (-want +got):\n%s", d)
	}
}

// A caller that sees the store synced finds the listed objects in it.
func TestSyncedAfterObjectsAreVisible(t *testing.T) {
	t.Parallel()
	for range 10 {
		s := store.New(store.Options{})
		last := s.Sink("ns")  // the store is not synced before this scope
		for i := range 2000 { // enough objects to delay the publication of a commit
			list(t, s.Sink(fmt.Sprint("empty-", i)), 5)
		}
		seen := make(chan int)
		go func() {
			<-s.Synced()
			seen <- s.Len()
		}()
		list(t, last, 5, obj("a", "u1", 4))
		n := <-seen
		s.Close()
		if n != 1 {
			t.Fatalf("%d objects right after SYNCED", n)
		}
	}
}
