package flow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// recordingStore records the calls of Positions. It fails with err.
type recordingStore struct {
	Memory
	calls []string
	err   error
}

func (s *recordingStore) Save(ctx context.Context, key string, p Position) error {
	s.calls = append(s.calls, fmt.Sprintf("save %s %s", p.Step, p.Reason))
	if s.err != nil {
		return s.err
	}
	return s.Memory.Save(ctx, key, p)
}

func (s *recordingStore) Clear(ctx context.Context, key string) error {
	s.calls = append(s.calls, "clear")
	return s.Memory.Clear(ctx, key)
}

// testJournal returns the journal of a fiber that has begun, at the first step of a flow, without an engine.
func testJournal(store Positions, host canceller, nodes ...Node[packet]) *journal {
	c := &core{time: newTimeline(systemClock{})}
	f, d := newFiber(&packet{}), New("f", nodes...).def
	f.e, f.key, f.flow, f.begun = c, "k", (&registry{}).bind(d), true
	f.progress.start(c.time.now())
	j := &journal{
		f: f, store: store, cut: noWait, reached: none, covered: none,
		env: &journalEnv{log: slog.New(slog.DiscardHandler), lost: &atomic.Uint64{}, host: host},
	}
	f.ext().journal = j
	return j
}

func undoable(name string) Node[packet] { return Step(name, stay, Undo(stay)) }

func TestJournalSavesWhatHasChanged(t *testing.T) {
	t.Parallel()
	store := &recordingStore{}
	j := testJournal(store, nil, undoable("a"), undoable("b"))
	ctx := t.Context()
	for range 2 {
		j.parked(ctx, whyAwait, 0, 0, none)
	}
	j.f.ext().trace = &traced{} // a difference in the trace alone does not count
	j.parked(ctx, whyAwait, 0, 0, none)
	j.parked(ctx, whyAwait, 0, j.f.e.time.now()+int64(time.Hour), none) // another deadline
	if err := j.cover(ctx, reasonSave); err != nil {                    // the step is covered already
		t.Error(err)
	}
	if want := []string{"save a await", "save a await"}; !slices.Equal(store.calls, want) {
		t.Errorf("called %q, want %q", store.calls, want)
	}
	store.calls = nil
	j.reach(1)
	j.f.progress.enter(1, 0, j.f.e.time.now(), j.f.e.time.now())
	for range 2 {
		if err := j.cover(ctx, reasonSave); err != nil {
			t.Error(err)
		}
	}
	if want := []string{"save b save"}; !slices.Equal(store.calls, want) {
		t.Errorf("before the next step: called %q, want %q", store.calls, want)
	}
}

func TestJournalThatCannotSave(t *testing.T) {
	t.Parallel()
	store, host := &recordingStore{err: errBad}, &fakeHost{}
	j := testJournal(store, host, undoable("a"))
	j.parked(t.Context(), whyAwait, 0, 0, none) // does not stop the fiber
	if lost := j.env.lost.Load(); lost != 1 {
		t.Errorf("%d positions are lost, want 1", lost)
	}
	for _, save := range []func() error{
		func() error { return j.beforeStep(t.Context()) }, func() error { return j.cover(t.Context(), reasonSave) },
	} {
		if err := save(); !errors.Is(err, errBad) {
			t.Errorf("a save that the step needs returns %v", err)
		}
	}
	if len(host.calls) > 0 {
		t.Errorf("the host got %q", host.calls)
	}
	store.err = ErrOvertaken
	j.parked(t.Context(), whyAwait, 0, 0, none)
	if want := []string{"cancel: " + ErrOvertaken.Error()}; !slices.Equal(host.calls, want) {
		t.Errorf("the host got %q, want %q", host.calls, want)
	}
	for i, want := range []bool{true, true, false, true} {
		if _, again := j.failed(3); again != want {
			t.Errorf("attempt %d may be repeated: %t", i+1, again)
		}
	}
}

func TestJournalOfAnEndedFiber(t *testing.T) {
	t.Parallel()
	long := errors.New(strings.Repeat("x", 2*maxError))
	for _, tc := range []struct {
		reason string
		saved  bool // a position was saved before
		status Status
		cause  error // of a cancellation
		want   []string
		kept   bool
	}{
		{reason: "nothing to clear", status: Completed},
		{reason: "completed", saved: true, status: Completed, want: []string{"clear"}},
		{reason: "failed", status: Failed, want: []string{"save a failed"}},
		{reason: "cancelled", status: Cancelled, cause: errBad, want: []string{"save a cancelled"}},
		{reason: "to be resumed", saved: true, status: Cancelled, cause: ErrInterrupted, kept: true},
		{reason: "closed", saved: true, status: Cancelled, cause: ErrClosed, kept: true},
		{reason: "moved", saved: true, status: Moved, cause: ErrMoved, kept: true},
	} {
		store := &recordingStore{}
		j := testJournal(store, nil, undoable("a"))
		if tc.saved {
			j.parked(t.Context(), whyAwait, 0, 0, none)
			store.calls = nil
		}
		j.f.ext().cause = tc.cause
		j.ended(tc.status, long)
		p, found, _ := store.Load(t.Context(), "k")
		ends := len(tc.want) > 0 && tc.want[0] != "clear"
		if !slices.Equal(store.calls, tc.want) || j.kept != tc.kept || p.Ended != ends || found != (ends || tc.kept) ||
			len(p.Err) > maxError+len("…") {
			t.Errorf("%s: called %q, kept %t, %+v", tc.reason, store.calls, j.kept, p)
		}
	}
}

// TestNoJournal: the methods that are called for each fiber do nothing without Positions.
func TestNoJournal(t *testing.T) {
	t.Parallel()
	var j *journal
	j.reach(0)
	j.forgetCut()
	j.parked(t.Context(), whyAwait, 0, 0, none)
	j.delayed(t.Context(), none, none)
	j.interrupted()
	j.ended(Completed, nil)
	err := errors.Join(j.beforeStep(t.Context()), j.cover(t.Context(), reasonSave))
	if err != nil || j.cutShort() != noWait {
		t.Error(err, j.cutShort())
	}
}
