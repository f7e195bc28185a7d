package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

func TestWaitFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		reason string
		do     func(t *testing.T, s *store.Store, sink source.Sink)
		want   error
	}{
		{"an event of that version", func(t *testing.T, s *store.Store, sink source.Sink) {
			apply(t, sink, source.Added, obj("a", "u1", 20))
		}, nil},
		{"a bookmark past it", func(t *testing.T, s *store.Store, sink source.Sink) { sink.Bookmark("25") }, nil},
		{"a list past it", func(t *testing.T, s *store.Store, sink source.Sink) { list(t, sink, 30) }, nil},
		{"a rollback", func(t *testing.T, s *store.Store, sink source.Sink) {
			sink.Replace().Commit(source.Commit{Version: "3", Epoch: true, Reason: "restored"})
		}, store.ErrEpoch},
		{"the end of the store", func(t *testing.T, s *store.Store, sink source.Sink) { s.Close() }, store.ErrClosed},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := store.New(store.Options{})
				defer s.Close()
				sink := s.Sink("")
				list(t, sink, 9)
				done := make(chan error, 1)
				go func() { done <- s.WaitFor(t.Context(), "20") }()
				synctest.Wait()
				apply(t, sink, source.Added, obj("b", "u2", 19))
				synctest.Wait()
				if len(done) > 0 {
					t.Fatalf("returned at version 19: %v", <-done)
				}
				tc.do(t, s, sink)
				if err := <-done; !errors.Is(err, tc.want) {
					t.Errorf("error %v, want %v", err, tc.want)
				}
			})
		})
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	one, two := s.Sink("one"), s.Sink("two")
	list(t, one, 50)
	tests := []struct {
		reason, namespace, version string
		want                       bool
	}{
		{"the version of the list", "one", "50", true},
		{"an older one", "one", "49", true},
		{"a newer one", "one", "51", false},
		{"no version at all", "two", "", true},
		{"a namespace that was not listed yet", "two", "1", false},
		{"a namespace that is not watched", "three", "1", false},
		{"a namespace that is not watched, and no version", "three", "", false},
	}
	for _, tc := range tests {
		if got := s.Covers(tc.namespace, tc.version); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.reason, got, tc.want)
		}
	}
	one.Bookmark("51")
	two.Bookmark("60")
	if !s.Covers("one", "51") || s.Covers("one", "60") {
		t.Error("a bookmark counts for its own scope")
	}
	if _, err := s.Put(source.JSON, thing{ns: "one", name: "a", uid: "u1", version: 70}.json()); err != nil {
		t.Fatal(err)
	}
	if s.Covers("one", "70") {
		t.Error("an own write covers the writes of other clients before it")
	}
}

func TestWaitForExplainsItsError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := store.New(store.Options{})
		defer s.Close()
		list(t, s.Sink("one"), 50)
		two := s.Sink("two")
		two.Report(source.Status{Phase: source.Degraded, Reason: source.ReasonForbidden, Message: "pods is forbidden"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := s.WaitFor(ctx, "20")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "pods is forbidden") ||
			strings.Contains(err.Error(), `"one"`) {
			t.Errorf("error %v, want that of the context and why namespace two is behind", err)
		}
		if err := s.WaitForNamespace(ctx, "one", "20"); err != nil {
			t.Errorf("the other namespace: %v", err)
		}
		if err := s.WaitForNamespace(ctx, "three", "20"); !errors.Is(err, store.ErrNotWatched) {
			t.Errorf("a namespace that is not watched: %v", err)
		}
		if err := s.WaitFor(ctx, ""); err != nil {
			t.Errorf("no version: %v", err)
		}
	})
}

func TestBarrier(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	var fail error
	s := newStore(t, store.Options{Probe: func(context.Context) (string, error) { return "9", fail }})
	list(t, s.Sink(""), 9)
	if err := s.Barrier(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.BarrierForNamespace(t.Context(), "any"); err != nil {
		t.Error(err)
	}
	fail = refused
	if err := s.Barrier(t.Context()); !errors.Is(err, refused) {
		t.Errorf("error %v, want that of the probe", err)
	}
	if err := newStore(t, store.Options{}).Barrier(t.Context()); err == nil {
		t.Error("no error without a probe")
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	s := store.New(store.Options{})
	two, one := s.Sink("two"), s.Sink("one")
	one.Report(source.Status{Phase: source.Watching, Reason: source.ReasonWatching})
	w := s.WatchStatus()
	two.Report(source.Status{Phase: source.Degraded, Reason: source.ReasonForbidden})
	if st := <-w.C; st.Namespace != "one" || st.Phase != source.Watching {
		t.Errorf("first %+v, want the present status", st)
	}
	if st := <-w.C; st.Namespace != "two" || st.Reason != source.ReasonForbidden {
		t.Errorf("then %+v, want the change", st)
	}
	if all := s.Statuses(); len(all) != 2 || all[0].Namespace != "one" || all[1].Phase != source.Degraded {
		t.Errorf("statuses %+v", all)
	}
	for range 200 { // the newest statuses stay, although no caller reads them
		one.Report(source.Status{Phase: source.Degraded})
	}
	one.Report(source.Status{Phase: source.Stopped})
	w.Close()
	var last source.Status
	for st := range w.C {
		last = st
	}
	if last.Phase != source.Stopped {
		t.Errorf("last %+v, want the newest", last)
	}
	other := s.WatchStatus()
	s.Close()
	for range other.C {
	}
	for range s.WatchStatus().C {
		t.Error("a status of a closed store")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{LabelSelector: "a=b"})
	sink := s.Sink("")
	list(t, sink, 9, obj("a", "u1", 5))
	apply(t, sink, source.Modified, obj("a", "u1", 4))
	c := store.Collector(func() []*store.Store { return []*store.Store{s} })
	want := `
# HELP fairlead_store_objects Objects in the store.
# TYPE fairlead_store_objects gauge
fairlead_store_objects{group="",resource="",selector="a=b",version=""} 1
# HELP fairlead_store_suppressed_total Changes that were older than the stored state.
# TYPE fairlead_store_suppressed_total counter
fairlead_store_suppressed_total{group="",resource="",selector="a=b",version=""} 1
`
	if err := testutil.CollectAndCompare(c, strings.NewReader(want), "fairlead_store_objects",
		"fairlead_store_suppressed_total"); err != nil {
		t.Error(err)
	}
	if p, err := testutil.CollectAndLint(c); err != nil || len(p) > 0 {
		t.Errorf("lint: %v %v", p, err)
	}
}
