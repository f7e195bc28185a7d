package flow

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"
)

// heldWait is a wait that a test controls, with an interval of live checks.
type heldWait struct {
	holds, live bool // live: holds only in a live check
	backstop    time.Duration
	err         error
	stopped     int
}

func (w *heldWait) Watch(Waker) func() { return func() { w.stopped++ } }
func (w *heldWait) Check(_ context.Context, live bool) (bool, error) {
	return w.holds && (live || !w.live), w.err
}
func (w *heldWait) Backstop() time.Duration { return w.backstop }

// TestAwaitingAlone checks waits without an engine. The clock stands still between the checks.
func TestAwaitingAlone(t *testing.T) {
	t.Parallel()
	clock := &handClock{now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
	line, f := newTimeline(clock), newFiber(&packet{})
	begin := func(waits ...Wait) *awaiting {
		a := &awaiting{}
		if err := a.start(waits, Waker{}, time.Minute, &line, line.now(), f); err != nil {
			t.Fatal(err)
		}
		return a
	}
	check := func(a *awaiting, live bool) (Wait, bool) {
		t.Helper()
		w, done, err := a.check(t.Context(), &line, live, f)
		if err != nil {
			t.Fatal(err)
		}
		return w, done
	}

	first, second := &heldWait{backstop: time.Hour}, &heldWait{backstop: 10 * time.Second, live: true}
	a := begin(first, second, Timeout(30*time.Second), Until(clock.now.Add(time.Minute)))
	now := line.now()
	if a.backstop != 10*time.Second || a.checkAt <= now || a.checkAt > plus(now, 10*time.Second) {
		t.Errorf("checked every %v, first after %v", a.backstop, time.Duration(a.checkAt-now))
	}
	if _, done := check(a, true); done {
		t.Error("it ends before a wait holds")
	}
	second.holds = true
	if _, done := check(a, false); done {
		t.Error("a cached check is live")
	}
	if w, done := check(a, true); !done || w != Wait(second) {
		t.Errorf("done %t, because of %v", done, w)
	}
	if check, timedOut := a.due(a.checkAt); !check || timedOut {
		t.Errorf("at the check: due %t, timed out %t", check, timedOut)
	}
	if check, timedOut := a.due(plus(now, 30*time.Second)); !check || !timedOut {
		t.Errorf("at the timeout: due %t, timed out %t", check, timedOut)
	}
	second.holds = false
	clock.now = clock.now.Add(time.Minute)
	if w, done := check(a, false); !done || w == Wait(second) {
		t.Errorf("at the time of Until: done %t, because of %v", done, w)
	}
	a.stop(f, slog.New(slog.DiscardHandler))
	if first.stopped != 1 || second.stopped != 1 {
		t.Errorf("the watches were stopped %d and %d times", first.stopped, second.stopped)
	}

	first.err = errBad
	w, done, err := begin(second, first).check(t.Context(), &line, false, f)
	if !done || w != Wait(first) || !errors.Is(err, errBad) {
		t.Errorf("an error: done %t, because of %v: %v", done, w, err)
	}
	if a := begin(&Signal{}); a.checkAt != 0 {
		t.Error("a signal is checked without an event")
	}
	never := Func(func(context.Context) (bool, error) { return false, nil }, 0)
	for reason, waits := range map[string][]Wait{
		"a nil wait": {nil}, "a Func without a function": {Func(nil, time.Second)},
		"only a Func without an interval": {never},
	} {
		if err := new(awaiting).start(waits, Waker{}, time.Minute, &line, line.now(), f); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
