package executor

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/internal/course"
	"github.com/fairlead-io/fairlead/operations/internal/course/coursetest"
)

func admitted() bool { return true }

// TestRunsMissNoEvent: an event wakes the live run. If the run ends before it has drained the event, remove reports it.
// A replaced run reports nothing.
func TestRunsMissNoEvent(t *testing.T) {
	t.Parallel()
	var ends []store.Key
	s := newRuns(func(key store.Key) { ends = append(ends, key) })
	key := store.Key{Namespace: "ns", Name: "a"}
	r := &run{key: key}
	if s.notify(key) {
		t.Error("there is a run before the first one")
	}
	if added, here := s.add(r, func() bool { return false }); added || here {
		t.Error("a run is added although its slot is not here")
	}
	if added, here := s.add(r, admitted); !added || !here {
		t.Error("the run is not added")
	}
	if added, here := s.add(&run{key: key}, func() bool { t.Error("a second run enters"); return true }); added || !here {
		t.Error("a second run is added")
	}
	if !s.notify(key) {
		t.Error("there is no run")
	}
	if _, woken := s.drainEvents(r); !woken {
		t.Error("the run is not woken")
	}
	s.park(r)
	s.notify(key)
	if missed := s.remove(r); !missed || !slices.Equal(ends, []store.Key{key}) {
		t.Errorf("missed %t, ends %v", missed, ends)
	}
	next := &run{key: key}
	s.add(next, admitted)
	s.notify(key)
	if s.remove(r) || len(ends) != 1 {
		t.Error("the end of a replaced run counts")
	}
	if !s.forget(key) || s.forget(key) || s.notify(key) {
		t.Error("a deleted operation has a run")
	}
	if s.remove(next) || len(ends) != 2 {
		t.Error("the end of the run of a deleted operation is not reported once")
	}
}

// TestRunsCount: operations are counted from the first update until they end or their run is removed.
func TestRunsCount(t *testing.T) {
	t.Parallel()
	s := newRuns(func(store.Key) {})
	a, b := &run{key: store.Key{Name: "a"}}, &run{key: store.Key{Name: "b"}}
	s.add(a, admitted)
	s.add(b, admitted)
	want := func(reason string, running, near int) {
		t.Helper()
		if got := s.census(time.Unix(100, 0)); got != (census{running: running, near: near}) {
			t.Errorf("%s: %+v", reason, got)
		}
	}
	want("before the first update", 0, 0)
	s.update(a, true, 50, 1)
	s.update(b, true, 200, 2)
	want("both in progress", 2, 1)
	s.update(a, true, 300, 1)
	want("a got another deadline", 2, 0)
	if woken := s.notifyNaming("", 2); woken != 1 || !b.news.take() || a.news.take() {
		t.Errorf("%d are woken by a Webhook that b names", woken)
	}
	s.update(a, false, 300, 1)
	want("a has ended", 1, 0)
	if got := s.unfinished([]string{"/a", "/b", "/c"}); !slices.Equal(got, []store.Key{b.key}) {
		t.Errorf("unfinished are %v", got)
	}
	s.remove(a)
	s.forget(b.key)
	s.update(b, true, 200, 2)
	want("both runs have ended", 0, 0)
}

// TestRunsAccept: the first version at which a request was seen stays as long as its run lives. Its interval may be
// narrowed.
func TestRunsAccept(t *testing.T) {
	t.Parallel()
	s := newRuns(func(store.Key) {})
	op := coursetest.Requested(func(op *v1alpha1.Operation) { op.ResourceVersion = "7" })
	key := store.Key{Namespace: op.Namespace, Name: op.Name}
	r := &run{key: key}
	s.accept(r, op)
	if _, known := s.acceptance(op); known {
		t.Error("the acceptance is known before the run")
	}
	s.add(r, admitted)
	later := op.DeepCopy()
	later.ResourceVersion = "9"
	if s.accept(r, later) {
		t.Error("a later version replaces the first one")
	}
	if a, known := s.acceptance(later); !known || a.By != "7" {
		t.Errorf("accepted by %q, %t", a.By, known)
	}
	s.narrow(op, func(a *course.Acceptance) { a.Since = "5" })
	if a, _ := s.acceptance(op); a.Since != "5" {
		t.Errorf("accepted since %q", a.Since)
	}
	other := op.DeepCopy()
	other.UID = "other"
	s.narrow(other, func(*course.Acceptance) { t.Error("another object's acceptance is narrowed") })
	if s.forgetAcceptances(); r.accepted != nil {
		t.Error("the acceptance outlives the versions")
	}
}

// TestRunsRead: a reader waits until a working flow has parked, but not longer than its patience or its context.
func TestRunsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newRuns(func(store.Key) {})
		r := &run{key: store.Key{Name: "a"}}
		read := func(ctx context.Context) (live, works bool, took time.Duration) {
			began := time.Now()
			s.read(ctx, r.key, func(r *run, w bool) { live, works = r != nil, w })
			return live, works, time.Since(began)
		}
		check := func(reason string, ctx context.Context, wantLive, wantWorks bool, wantTook time.Duration) {
			t.Helper()
			if live, works, took := read(ctx); live != wantLive || works != wantWorks || took != wantTook {
				t.Errorf("%s: live %t, works %t after %s", reason, live, works, took)
			}
		}
		check("no run", t.Context(), false, false, 0)
		s.add(r, admitted)
		check("not started", t.Context(), true, false, 0)
		s.drainEvents(r)
		check("working", t.Context(), true, true, patience)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		check("working, without time", ended, true, true, 0)
		go func() {
			time.Sleep(patience / 2)
			s.park(r)
		}()
		check("parks meanwhile", t.Context(), true, false, patience/2)
		if r.work != nil {
			t.Error("an idle run keeps its work")
		}
		s.drainEvents(r)
		s.conceal(r)
		go func() {
			time.Sleep(patience / 2)
			s.remove(r)
		}()
		check("ends meanwhile", t.Context(), false, false, patience/2)
		if len(s.readers) > 0 {
			t.Errorf("%d readers are kept", len(s.readers))
		}
	})
}
