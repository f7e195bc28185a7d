package store_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// status returns object a with a status and a spec, as the tests of the ledger write it.
func status(version int, spec, state string) thing {
	x := obj("a", "u1", version)
	x.meta = fmt.Sprintf(`,"generation":%d`, len(spec))
	x.more = fmt.Sprintf(`,"spec":{"s":%q},"status":{"state":%q}`, spec, state)
	return x
}

// bench is a store with object a at version 5, and a cursor of a reconciler.
type bench struct {
	t    *testing.T
	s    *store.Store
	sink source.Sink
	c    *store.Cursor
}

func newBench(t *testing.T) *bench {
	s := newStore(t, store.Options{})
	b := &bench{t: t, s: s, sink: s.Sink("")}
	list(t, b.sink, 9, status(5, "x", "old"))
	b.c = s.Subscribe(store.SubscribeOptions{From: store.FromNow, HoldWrites: "ctl"})
	drain(b.c)
	return b
}

// begin starts a status write of the reconciler that is computed from the present state.
func (b *bench) begin(sent string) *store.Write {
	k := store.Key{Namespace: "ns", Name: "a"}
	base, _ := b.s.Get(k)
	return b.s.BeginWrite(k, store.WriteContext{
		Owner: "ctl", Primary: k, Base: base, Subresource: "status",
		Sent: []byte(fmt.Sprintf(`{"status":{"state":%q}}`, sent)),
	})
}

func (b *bench) done(w *store.Write, x thing) {
	b.t.Helper()
	if _, err := w.Done(source.JSON, x.json()); err != nil {
		b.t.Fatal(err)
	}
}

// rollback restores the server to a version of object a.
func (b *bench) rollback(version int) {
	b.t.Helper()
	r := b.sink.Replace()
	if err := r.Put(status(version, "x", "old").object()); err != nil {
		b.t.Fatal(err)
	}
	r.Commit(source.Commit{Version: fmt.Sprint(version), Epoch: true, Reason: "restored"})
}

func (b *bench) event(x thing)   { b.t.Helper(); apply(b.t, b.sink, source.Modified, x) }
func (b *bench) deleted(x thing) { b.t.Helper(); apply(b.t, b.sink, source.Deleted, x) }

func TestOwnEchoes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		do     func(b *bench)
		want   []string
	}{
		{"the echo after the answer is not delivered", func(b *bench) {
			w := b.begin("new")
			b.done(w, status(10, "x", "new"))
			b.event(status(10, "x", "new"))
		}, nil},
		{"nor the echo before the answer", func(b *bench) {
			w := b.begin("new")
			b.event(status(10, "x", "new"))
			if got := drain(b.c); len(got) != 0 {
				b.t.Errorf("delivered while the write is in flight: %v", summary(got))
			}
			b.done(w, status(10, "x", "new"))
		}, nil},
		{"two writes, both echoes", func(b *bench) {
			w := b.begin("one")
			b.done(w, status(10, "x", "one"))
			w = b.begin("two")
			b.event(status(10, "x", "one"))
			b.done(w, status(11, "x", "two"))
			b.event(status(11, "x", "two"))
		}, nil},
		{"a foreign write between our read and our write", func(b *bench) {
			w := b.begin("new")
			b.event(status(10, "xx", "old"))
			b.done(w, status(11, "xx", "new"))
			b.event(status(11, "xx", "new"))
		}, []string{"MODIFIED ns/a@10<5", "MODIFIED ns/a@11<10"}},
		{"the same, both events before the answer: one that spans them", func(b *bench) {
			w := b.begin("new")
			b.event(status(10, "xx", "old"))
			b.event(status(11, "xx", "new"))
			drain(b.c)
			b.done(w, status(11, "xx", "new"))
		}, []string{"MODIFIED ns/a@11<5"}},
		{"after our write and before our event", func(b *bench) {
			w := b.begin("new")
			b.done(w, status(10, "x", "new"))
			b.event(status(10, "x", "new"))
			b.event(status(11, "xx", "new"))
		}, []string{"MODIFIED ns/a@11<10"}},
		{"our no-op write right after a foreign spec change", func(b *bench) {
			w := b.begin("old")
			b.done(w, status(10, "xx", "old"))
			b.event(status(10, "xx", "old"))
		}, []string{"MODIFIED ns/a@10<5"}},
		{"our no-op write right after a foreign change of another part of the status", func(b *bench) {
			x := status(10, "x", "old")
			x.more = `,"spec":{"s":"x"},"status":{"state":"old","other":"foreign"}`
			w := b.begin("old")
			b.done(w, x)
			b.event(x)
		}, []string{"MODIFIED ns/a@10<5"}},
		{"a no-op write is not recorded: the next foreign event is delivered", func(b *bench) {
			w := b.begin("old")
			b.done(w, status(5, "x", "old"))
			b.event(status(10, "x", "foreign"))
		}, []string{"MODIFIED ns/a@10<5"}},
		{"a relist that delivers one object containing both changes", func(b *bench) {
			w := b.begin("new")
			b.done(w, status(11, "x", "new"))
			list(b.t, b.sink, 20, status(11, "x", "new"))
		}, []string{"MODIFIED ns/a@11<5"}},
		{"a deletionTimestamp set during our status patch", func(b *bench) {
			x := status(11, "x", "new")
			x.meta += `,"deletionTimestamp":"2026-01-01T00:00:00Z"`
			w := b.begin("new")
			b.done(w, x)
			b.event(x)
		}, []string{"MODIFIED ns/a@11<5"}},
		{"delete and re-create inside the window are both delivered", func(b *bench) {
			w := b.begin("new")
			b.deleted(status(10, "x", "old"))
			x := status(11, "x", "fresh")
			x.uid = "u2"
			apply(b.t, b.sink, source.Added, x)
			drainInto(b, "DELETED ns/a@10<5")
			w.Fail()
		}, []string{"ADDED ns/a@11"}},
		{"a deletion releases the held changes before it", func(b *bench) {
			w := b.begin("new")
			b.event(status(10, "xx", "old"))
			b.deleted(status(11, "xx", "old"))
			drainInto(b, "DELETED ns/a@11<5")
			w.Fail()
		}, nil},
		{"two parallel writes to one object", func(b *bench) {
			one, two := b.begin("one"), b.begin("two")
			b.done(one, status(10, "x", "one"))
			b.event(status(10, "x", "one"))
			b.event(status(11, "x", "two"))
			if got := drain(b.c); len(got) != 0 {
				b.t.Errorf("delivered while a write is in flight: %v", summary(got))
			}
			b.done(two, status(11, "x", "two"))
		}, nil},
		{"a write that fails after events were held", func(b *bench) {
			w := b.begin("new")
			b.event(status(10, "x", "foreign"))
			drain(b.c)
			w.Fail()
		}, []string{"MODIFIED ns/a@10<5"}},
		{"a write whose answer cannot be read is like one that failed", func(b *bench) {
			w := b.begin("new")
			b.event(status(10, "x", "new"))
			if _, err := w.Done(source.JSON, []byte("<html>")); err == nil {
				b.t.Error("no error")
			}
		}, []string{"MODIFIED ns/a@10<5"}},
		{"a namespace that stops being watched in between", func(b *bench) {
			w := b.begin("new")
			b.event(status(10, "x", "new"))
			drain(b.c)
			b.s.DropScope("")
			b.done(w, status(10, "x", "new"))
		}, []string{"DELETED ns/a@10<10 inferred"}}, // the echo counts as delivered
		{"a rollback forgets what was written: a foreign write of the same version is delivered", func(b *bench) {
			b.done(b.begin("new"), status(10, "x", "new"))
			b.rollback(5)
			b.event(status(10, "x", "foreign"))
		}, []string{"EPOCH", "MODIFIED ns/a@10<5"}},
		{"also if the write is answered after it", func(b *bench) {
			w := b.begin("new")
			b.rollback(5)
			b.done(w, status(10, "x", "new"))
			b.event(status(10, "x", "foreign"))
		}, []string{"EPOCH", "MODIFIED ns/a@10<5"}},
		{"a locked write does not compare the content", func(b *bench) {
			k := store.Key{Namespace: "ns", Name: "a"}
			base, _ := b.s.Get(k)
			w := b.s.BeginWrite(k, store.WriteContext{Owner: "ctl", Primary: k, Base: base, Locked: true})
			b.done(w, status(10, "xxx", "other"))
			b.event(status(10, "xxx", "other"))
		}, nil},
		{"the creation of an object", func(b *bench) {
			k := store.Key{Namespace: "ns", Name: "b"}
			w := b.s.BeginWrite(k, store.WriteContext{Owner: "ctl", Primary: k, Create: true})
			b.done(w, obj("b", "u2", 10))
			apply(b.t, b.sink, source.Added, obj("b", "u2", 10))
		}, nil},
		{"a write of another controller is foreign", func(b *bench) {
			k := store.Key{Namespace: "ns", Name: "a"}
			base, _ := b.s.Get(k)
			w := b.s.BeginWrite(k, store.WriteContext{Owner: "other", Primary: k, Base: base, Locked: true})
			b.event(status(10, "x", "new"))
			b.done(w, status(10, "x", "new"))
		}, []string{"MODIFIED ns/a@10<5"}},
		{"a write for another primary is foreign", func(b *bench) {
			k := store.Key{Namespace: "ns", Name: "a"}
			base, _ := b.s.Get(k)
			w := b.s.BeginWrite(k, store.WriteContext{Owner: "ctl", Primary: store.Key{Name: "p"}, Base: base, Locked: true})
			b.done(w, status(10, "x", "new"))
			b.event(status(10, "x", "new"))
		}, []string{"MODIFIED ns/a@10<5"}},
		{"a write computed from a state older than the delivered one", func(b *bench) {
			w := b.begin("new") // of version 5
			b.event(status(10, "x", "foreign"))
			b.done(w, status(11, "x", "new"))
			b.event(status(11, "x", "new"))
		}, []string{"MODIFIED ns/a@10<5", "MODIFIED ns/a@11<10"}},
		{"changes that were folded are never an echo", func(b *bench) {
			w := b.begin("new")
			b.done(w, status(10, "x", "new"))
			b.event(status(10, "x", "new"))
			store.Fold(b.c, 0)
		}, []string{"MODIFIED ns/a@10<5"}},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			all := b.s.Subscribe(store.SubscribeOptions{From: store.FromNow})
			drain(all)
			tc.do(b)
			if d := cmp.Diff(tc.want, summary(drain(b.c))); d != "" {
				t.Errorf("the reconciler (-want +got):\n%s", d)
			}
			if len(drain(all)) == 0 && tc.reason[:5] != "a no-" {
				t.Error("a subscriber without held writes got no event")
			}
		})
	}
}

func drainInto(b *bench, want string) {
	b.t.Helper()
	if got := summary(drain(b.c)); len(got) != 1 || got[0] != want {
		b.t.Errorf("delivered %v, want %s", got, want)
	}
}

func TestLedgerForgets(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for v := 10; v < 2000; v++ {
		state := fmt.Sprint(v)
		b.done(b.begin(state), status(v, "x", state))
		b.event(status(v, "x", state))
		if got := drain(b.c); len(got) != 0 {
			t.Fatalf("write %d caused %v", v, summary(got))
		}
	}
	if n := store.LedgerSize(b.s); n > 2*64 {
		t.Errorf("the ledger remembers %d of 2000 writes that were judged", n)
	}
}

func TestWriteEndsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.begin("new")
	b.done(w, status(10, "x", "new"))
	w.Fail()
	if r := w.Deleted("u1"); r != 0 {
		t.Errorf("a second end has the effect %v", r)
	}
	if _, ok := b.s.Get(store.Key{Namespace: "ns", Name: "a"}); !ok {
		t.Error("a second end took effect")
	}
}
