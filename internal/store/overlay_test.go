package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// put overlays an answer.
func put(t testing.TB, s *store.Store, x thing) store.PutResult {
	t.Helper()
	r, err := s.Put(source.JSON, x.json())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func read(s *store.Store) []string {
	out := []string{}
	for r := range s.Snapshot().All() {
		out = append(out, r.Key().String()+"@"+r.Version())
	}
	return sortStrings(out)
}

func sortStrings(s []string) []string {
	for i := range s {
		for j := i + 1; j < len(s); j++ {
			if s[j] < s[i] {
				s[i], s[j] = s[j], s[i]
			}
		}
	}
	return s
}

func TestOverlay(t *testing.T) {
	t.Parallel()
	a := func(version int) thing { return obj("a", "u1", version) }
	tests := []struct {
		reason string
		do     func(t *testing.T, s *store.Store, sink source.Sink)
		want   []string // what reads return
		events []string // after SYNCED
		left   int      // entries
	}{
		{
			"an update is read at once", func(t *testing.T, s *store.Store, sink source.Sink) { put(t, s, a(10)) },
			[]string{"ns/a@10"},
			nil, 1,
		},
		{
			"a create is read at once, beside the others",
			func(t *testing.T, s *store.Store, sink source.Sink) { put(t, s, obj("b", "u2", 10)) },
			[]string{"ns/a@5", "ns/b@10"},
			nil, 1,
		},
		{"its event evicts it, and is delivered", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, a(10))
			apply(t, sink, source.Modified, a(10))
		}, []string{"ns/a@10"}, []string{"MODIFIED ns/a@10<5"}, 0},
		{"a newer event evicts it", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, a(10))
			apply(t, sink, source.Modified, a(12))
		}, []string{"ns/a@12"}, []string{"MODIFIED ns/a@12<5"}, 0},
		{"an older event does not, and is delivered all the same", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, a(12))
			apply(t, sink, source.Modified, a(11))
		}, []string{"ns/a@12"}, []string{"MODIFIED ns/a@11<5"}, 1},
		{"an answer that the watch has overtaken is not overlaid", func(t *testing.T, s *store.Store, sink source.Sink) {
			apply(t, sink, source.Modified, a(12))
			if r := put(t, s, a(10)); r != store.AlreadyKnown {
				t.Error(r)
			}
		}, []string{"ns/a@12"}, []string{"MODIFIED ns/a@12<5"}, 0},
		{
			"an answer after creation and deletion were seen resurrects nothing",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				apply(t, sink, source.Added, obj("b", "u2", 10))
				apply(t, sink, source.Deleted, obj("b", "u2", 11))
				if r := put(t, s, obj("b", "u2", 10)); r != store.AlreadyKnown {
					t.Error(r)
				}
			},
			[]string{"ns/a@5"},
			[]string{"ADDED ns/b@10", "DELETED ns/b@11<10"},
			0,
		},
		{"a bookmark past the answer has the same effect", func(t *testing.T, s *store.Store, sink source.Sink) {
			sink.Bookmark("20")
			put(t, s, obj("b", "u2", 15))
		}, []string{"ns/a@5"}, nil, 0},
		{"the newer of two answers stays, in any order", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, a(12))
			put(t, s, a(11))
		}, []string{"ns/a@12"}, nil, 1},
		{"an answer without version is not overlaid", func(t *testing.T, s *store.Store, sink source.Sink) {
			if r := put(t, s, a(0)); r != store.Unversioned {
				t.Error(r)
			}
		}, []string{"ns/a@5"}, nil, 0},
		{"the deletion of another object leaves it", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, obj("b", "u2", 10))
			apply(t, sink, source.Deleted, a(11))
		}, []string{"ns/b@10"}, []string{"DELETED ns/a@11<5"}, 1},
		{"a delete is read at once", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(a(0).key(), "u1")
		}, []string{}, nil, 1},
		{"an older change of a deleted object does not bring it back", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(a(0).key(), "u1")
			apply(t, sink, source.Modified, a(10))
		}, []string{}, []string{"MODIFIED ns/a@10<5"}, 1},
		{"its event ends the tombstone", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(a(0).key(), "u1")
			apply(t, sink, source.Deleted, a(10))
		}, []string{}, []string{"DELETED ns/a@10<5"}, 0},
		{"a re-creation is read", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(a(0).key(), "u1")
			put(t, s, obj("a", "u9", 12))
		}, []string{"ns/a@12"}, nil, 1},
		{
			"the deletion that precedes our re-creation does not evict it",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				s.PutDeleted(a(0).key(), "u1")
				put(t, s, obj("a", "u9", 12))
				apply(t, sink, source.Deleted, a(11))
			},
			[]string{"ns/a@12"},
			[]string{"DELETED ns/a@11<5"},
			1,
		},
		{"a foreign re-creation is read", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(a(0).key(), "u1")
			apply(t, sink, source.Added, obj("a", "u9", 12))
		}, []string{"ns/a@12"}, []string{"DELETED ns/a@5<5 inferred", "ADDED ns/a@12"}, 0},
		{
			"a late answer to an update does not bring back a deleted object",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				s.PutDeleted(a(0).key(), "u1")
				put(t, s, a(11))
			},
			[]string{},
			nil, 1,
		},
		{
			"a delete of an unknown incarnation changes no read, and is remembered",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				s.PutDeleted(a(0).key(), "u0")
			},
			[]string{"ns/a@5"},
			nil, 1,
		},
		{
			"an object deleted before its creation event is not read, but delivered",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				s.PutDeleted(obj("b", "", 0).key(), "u2")
				apply(t, sink, source.Added, obj("b", "u2", 10))
				apply(t, sink, source.Modified, obj("b", "u2", 11))
			},
			[]string{"ns/a@5"},
			[]string{"ADDED ns/b@10", "MODIFIED ns/b@11<10"},
			1,
		},
		{"until the watch delivers its deletion", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(obj("b", "", 0).key(), "u2")
			apply(t, sink, source.Added, obj("b", "u2", 10))
			apply(t, sink, source.Deleted, obj("b", "u2", 11))
		}, []string{"ns/a@5"}, []string{"ADDED ns/b@10", "DELETED ns/b@11<10"}, 0},
		{"or a list that began later omits it", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(obj("b", "", 0).key(), "u2")
			list(t, sink, 20, a(5))
		}, []string{"ns/a@5"}, nil, 0},
		{"the watch can be faster than the answer to a delete", func(t *testing.T, s *store.Store, sink source.Sink) {
			apply(t, sink, source.Added, obj("b", "u2", 10))
			apply(t, sink, source.Deleted, obj("b", "u2", 11))
			if r := s.PutDeleted(obj("b", "", 0).key(), "u2"); r != store.AlreadyKnown {
				t.Error(r)
			}
		}, []string{"ns/a@5"}, []string{"ADDED ns/b@10", "DELETED ns/b@11<10"}, 0},
		{"a list can be faster, too", func(t *testing.T, s *store.Store, sink source.Sink) {
			list(t, sink, 20)
			if r := s.PutDeleted(a(0).key(), "u1"); r != store.AlreadyKnown {
				t.Error(r)
			}
		}, []string{}, []string{"DELETED ns/a@5<5 inferred"}, 0},
		{
			"none of several incarnations that we created and deleted comes back",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				for i, uid := range []string{"u2", "u3"} {
					put(t, s, obj("b", uid, 10+2*i))
					s.PutDeleted(obj("b", "", 0).key(), types.UID(uid))
				}
				apply(t, sink, source.Added, obj("b", "u2", 10))
			},
			[]string{"ns/a@5"},
			[]string{"ADDED ns/b@10"},
			1,
		},
		{"until the watch has delivered all of them", func(t *testing.T, s *store.Store, sink source.Sink) {
			for i, uid := range []string{"u2", "u3"} {
				put(t, s, obj("b", uid, 10+2*i))
				s.PutDeleted(obj("b", "", 0).key(), types.UID(uid))
			}
			for i, uid := range []string{"u2", "u3"} {
				apply(t, sink, source.Added, obj("b", uid, 10+2*i))
				apply(t, sink, source.Deleted, obj("b", uid, 11+2*i))
			}
		}, []string{"ns/a@5"}, []string{"ADDED ns/b@10", "DELETED ns/b@11<10", "ADDED ns/b@12", "DELETED ns/b@13<12"}, 0},
		{
			"an incarnation before the deleted one does not come back either",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				put(t, s, obj("a", "u9", 12)) // another client deleted u1
				s.PutDeleted(a(0).key(), "u9")
				apply(t, sink, source.Modified, a(10))
			},
			[]string{},
			[]string{"MODIFIED ns/a@10<5"},
			1,
		},
		{"a write between two deletes keeps both tombstones", func(t *testing.T, s *store.Store, sink source.Sink) {
			s.PutDeleted(a(0).key(), "u1")
			put(t, s, obj("a", "u9", 12))
			s.PutDeleted(a(0).key(), "u9")
			apply(t, sink, source.Modified, a(10))
			apply(t, sink, source.Deleted, a(11))
			apply(t, sink, source.Added, obj("a", "u9", 12))
		}, []string{}, []string{"MODIFIED ns/a@10<5", "DELETED ns/a@11<10", "ADDED ns/a@12"}, 1},
		{
			"a list that began after the delete and omits the object ends the tombstone",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				s.PutDeleted(a(0).key(), "u1")
				list(t, sink, 20)
			},
			[]string{},
			[]string{"DELETED ns/a@5<5 inferred"},
			0,
		},
		{"a list begun before the delete does not bring it back", func(t *testing.T, s *store.Store, sink source.Sink) {
			r := sink.Replace()
			if err := r.Put(a(5).object()); err != nil {
				t.Fatal(err)
			}
			s.PutDeleted(a(0).key(), "u1")
			r.Commit(source.Commit{Version: "20"})
		}, []string{}, nil, 1},
		{
			"a list that began before the delete and omits the listed object ends the tombstone",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				r := sink.Replace()
				s.PutDeleted(a(0).key(), "u1")
				r.Commit(source.Commit{Version: "20"})
			},
			[]string{},
			[]string{"DELETED ns/a@5<5 inferred"},
			0,
		},
		{"also if it is newer than a version that only we knew", func(t *testing.T, s *store.Store, sink source.Sink) {
			r := sink.Replace()
			if err := r.Put(a(5).object()); err != nil {
				t.Fatal(err)
			}
			put(t, s, obj("b", "u2", 15))
			s.PutDeleted(obj("b", "", 0).key(), "u2")
			r.Commit(source.Commit{Version: "20"})
		}, []string{"ns/a@5"}, nil, 0},
		{"but not if it is older", func(t *testing.T, s *store.Store, sink source.Sink) {
			r := sink.Replace()
			if err := r.Put(a(5).object()); err != nil {
				t.Fatal(err)
			}
			put(t, s, obj("b", "u2", 25))
			s.PutDeleted(obj("b", "", 0).key(), "u2")
			r.Commit(source.Commit{Version: "20"})
			apply(t, sink, source.Added, obj("b", "u2", 25))
		}, []string{"ns/a@5"}, []string{"ADDED ns/b@25"}, 1},
		{"a list that has the version evicts it", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, a(10))
			list(t, sink, 20, a(10))
		}, []string{"ns/a@10"}, []string{"MODIFIED ns/a@10<5"}, 0},
		{"a list older than our write leaves it", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, obj("b", "u2", 30))
			list(t, sink, 20, a(5))
		}, []string{"ns/a@5", "ns/b@30"}, nil, 1},
		{
			"created by us, deleted by another client during an outage: a ghost",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				put(t, s, obj("b", "u2", 10))
				list(t, sink, 20, a(5))
			},
			[]string{"ns/a@5"},
			[]string{"DELETED ns/b@10 inferred"},
			0,
		},
		{
			"a deletion inferred from a list evicts any version",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				put(t, s, a(30))
				list(t, sink, 20)
			},
			[]string{},
			[]string{"DELETED ns/a@5<5 inferred"},
			0,
		},
		{"but not our re-creation after that list", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, obj("a", "u9", 30))
			list(t, sink, 20)
		}, []string{"ns/a@30"}, []string{"DELETED ns/a@5<5 inferred"}, 1},
		{"an epoch drops everything", func(t *testing.T, s *store.Store, sink source.Sink) {
			put(t, s, a(30))
			s.PutDeleted(a(0).key(), "u1")
			put(t, s, obj("b", "u2", 31))
			r := sink.Replace()
			if err := r.Put(a(3).object()); err != nil {
				t.Fatal(err)
			}
			r.Commit(source.Commit{Version: "4", Epoch: true})
		}, []string{"ns/a@3"}, []string{"EPOCH", "MODIFIED ns/a@3<5"}, 0},
		{
			"an answer or a delete from before an epoch is ignored after it",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				written := s.BeginWrite(a(0).key(), store.WriteContext{})
				deleted := s.BeginWrite(a(0).key(), store.WriteContext{})
				r := sink.Replace()
				if err := r.Put(a(3).object()); err != nil {
					t.Fatal(err)
				}
				r.Commit(source.Commit{Version: "4", Epoch: true})
				if r, err := written.Done(source.JSON, a(30).json()); r != store.NeedsBarrier || err != nil {
					t.Error(r, err)
				}
				if r := deleted.Deleted("u1"); r != store.NeedsBarrier {
					t.Error(r)
				}
				if r, err := s.BeginWrite(a(0).key(), store.WriteContext{}).Done(source.JSON, a(6).json()); r != store.Overlaid ||
					err != nil {
					t.Error(r, err)
				}
			},
			[]string{"ns/a@6"},
			[]string{"EPOCH", "MODIFIED ns/a@3<5"},
			1,
		},
		{
			"a namespace that is not watched any more drops its entries",
			func(t *testing.T, s *store.Store, sink source.Sink) {
				put(t, s, a(30))
				s.DropScope("")
				if r := put(t, s, a(31)); r != store.OutOfScope {
					t.Error(r)
				}
			},
			[]string{},
			[]string{"DELETED ns/a@5<5 inferred"},
			0,
		},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, store.Options{})
			sink := s.Sink("")
			list(t, sink, 9, a(5))
			c := s.Subscribe(store.SubscribeOptions{From: store.FromNow})
			drain(c)
			tc.do(t, s, sink)
			if d := cmp.Diff(tc.want, read(s)); d != "" {
				t.Errorf("read (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tc.events, summary(drain(c))); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
			if n := s.OverlayStats().Entries; n != tc.left {
				t.Errorf("%d entries left, want %d", n, tc.left)
			}
		})
	}
}

func TestOverlayBeforeFirstList(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	put(t, s, obj("b", "u2", 10))
	if d := cmp.Diff([]string{"ns/b@10"}, read(s)); d != "" {
		t.Error(d)
	}
	list(t, sink, 20, obj("b", "u2", 10))
	if n := s.OverlayStats().Entries; n != 0 {
		t.Errorf("%d entries", n)
	}
}

func TestOverlaySelectors(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{LabelSelector: "color=red"})
	sink := s.Sink("ns")
	if err := s.AddIndex("color", func(r *store.Record) ([]string, error) {
		v, _ := r.Label("size")
		return []string{v}, nil
	}); err != nil {
		t.Fatal(err)
	}
	x := obj("a", "u1", 5)
	x.labels = `"color":"red","size":"s"`
	list(t, sink, 9, x)
	x.version, x.labels = 10, `"color":"red","size":"l"`
	put(t, s, x)
	snap := s.Snapshot()
	if got := keysOf(snap.Index("color", "l")); len(got) != 1 {
		t.Error("an index does not see the own write")
	}
	if got := append(keysOf(snap.Index("color", "s")), keysOf(snap.Index(store.IndexLabel, "size=s"))...); len(got) != 0 {
		t.Error("an index still has the state before the own write")
	}
	x.version, x.labels = 12, `"color":"blue"`
	if r := put(t, s, x); r != store.OutOfScope {
		t.Error(r)
	}
	if d := cmp.Diff([]string{}, read(s)); d != "" {
		t.Errorf("an object that we moved out of the selector is still read: %s", d)
	}
	apply(t, sink, source.Deleted, x)
	if n := s.OverlayStats().Entries; n != 0 {
		t.Errorf("%d entries after the watch has confirmed it", n)
	}
	if r := put(t, s, thing{ns: "other", name: "b", uid: "u2", version: 20}); r != store.OutOfScope {
		t.Errorf("another namespace: %v", r)
	}
	f := newStore(t, store.Options{FieldSelector: "spec.nodeName=n1"})
	list(t, f.Sink(""), 9)
	if r := put(t, f, obj("a", "u1", 10)); r != store.NeedsBarrier {
		t.Errorf("a field selector that cannot be evaluated: %v", r)
	}
	n := newStore(t, store.Options{FieldSelector: "metadata.name=a"})
	list(t, n.Sink(""), 9)
	if r := put(t, n, obj("a", "u1", 10)); r != store.Overlaid {
		t.Errorf("a field selector on the name that matches: %v", r)
	}
	if r := put(t, n, obj("b", "u1", 10)); r != store.OutOfScope {
		t.Errorf("a field selector on the name that does not match: %v", r)
	}
}

// TestLateWriteIsLoggedOutsideOfLocks: the store logs a late write without a lock, so a log handler may read the store.
func TestLateWriteIsLoggedOutsideOfLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s *store.Store
		handler := &logFunc{call: func() {
			if store.Locked(s) {
				t.Error("the store is locked: a read would deadlock")
			}
		}}
		s = newStore(t, store.Options{OverlayBound: time.Minute, Logger: slog.New(handler)})
		list(t, s.Sink(""), 9)
		x := obj("a", "u1", 10)
		put(t, s, x)
		time.Sleep(61 * time.Second)
		for range 2 {
			if !s.Overdue(x.key()) || handler.count != 1 {
				t.Errorf("logged %d times, want once", handler.count)
			}
		}
	})
}

// logFunc is a log handler that calls a function for each line.
type logFunc struct {
	slog.Handler
	call  func()
	count int
}

func (h *logFunc) Enabled(context.Context, slog.Level) bool { return true }
func (h *logFunc) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *logFunc) Handle(context.Context, slog.Record) error {
	h.count++
	h.call()
	return nil
}

func TestOverlayBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.New(store.Options{OverlayBound: time.Minute})
		defer s.Close()
		list(t, s.Sink(""), 9)
		x := obj("a", "u1", 10)
		if s.Overdue(x.key()) {
			t.Error("overdue before it was written")
		}
		put(t, s, x)
		time.Sleep(59 * time.Second)
		if s.Overdue(x.key()) {
			t.Error("overdue before the bound")
		}
		time.Sleep(2 * time.Second)
		if st := s.OverlayStats(); !s.Overdue(x.key()) || len(st.Overdue) != 1 || st.Oldest != 61*time.Second {
			t.Errorf("not overdue after the bound: %+v", st)
		}
	})
}

// A tombstone whose deletion event never comes is not kept for ever, and does not make reads overdue. The object may
// have left before the list under way, or never have matched the selector.
func TestUnknownTombstonesExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.New(store.Options{OverlayBound: time.Minute})
		defer s.Close()
		sink := s.Sink("")
		list(t, sink, 9)
		k := obj("a", "", 0).key()
		s.PutDeleted(k, "u0")
		sink.Bookmark("10")
		if n := s.OverlayStats().Entries; n != 1 {
			t.Errorf("%d entries after a bookmark that may be older than the delete", n)
		}
		time.Sleep(2 * time.Minute)
		if st := s.OverlayStats(); s.Overdue(k) || len(st.Overdue) > 0 {
			t.Errorf("a tombstone that hides nothing is overdue: %+v", st)
		}
		sink.Bookmark("11")
		if n := s.OverlayStats().Entries; n != 0 {
			t.Errorf("%d entries are left", n)
		}
	})
}

func TestParseDeletion(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"kind":"Status","status":"Success","details":{"uid":"u1"}}`:                                                                  "true u1",
		`{"kind":"Pod","metadata":{"name":"a","uid":"u1"}}`:                                                                            "true u1",
		`{"kind":"Pod","metadata":{"name":"a","uid":"u1","deletionGracePeriodSeconds":0}}`:                                             "true u1",
		`{"kind":"Pod","metadata":{"name":"a","uid":"u1","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["f"]}}`:              "false u1",
		`{"kind":"Pod","metadata":{"name":"a","uid":"u1","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":30}}`: "false u1",
	} {
		gone, uid, err := store.ParseDeletion([]byte(body))
		if got := fmt.Sprint(gone, " ", uid); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", body, got, err, want)
		}
	}
	for _, bad := range []string{"<html>", "k8s\x00\xff"} {
		if _, _, err := store.ParseDeletion([]byte(bad)); err == nil {
			t.Errorf("no error for %q, which is not an answer", bad)
		}
	}
}
