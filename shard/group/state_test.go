package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/shard"
)

// TestMissingRightIsLoggedOnce checks that attempts without a response do not log a missing right again.
func TestMissingRightIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	s := &state{log: log}
	status := func() error { return newStatus(snapshot{opt: &Options{}, known: s.facts()}).Err }
	denied := fmt.Errorf("cannot write the Lease: %w", ErrForbidden)
	late := fmt.Errorf("cannot write the Lease: %w", context.DeadlineExceeded)
	s.setError("renew", denied)
	s.setError("renew", late) // the term ends
	log.Info("left to others", leftBehind(denied)...)
	s.setError("take part", denied)
	if n := strings.Count(logged.String(), ErrForbidden.Error()); n != 1 || strings.Contains(logged.String(), "deadline") {
		t.Errorf("It is logged %d times:\n%s", n, &logged)
	}
	if err := status(); !errors.Is(err, ErrForbidden) {
		t.Errorf("The status says %v.", err)
	}
	s.setError("renew", nil)
	s.setError("take part", errRecord) // a finding of a read, for which the right is there
	if err := status(); errors.Is(err, ErrForbidden) || !errors.Is(err, errRecord) {
		t.Errorf("With the right the status says %v.", err)
	}
	logged.Reset()
	s.setError("renew", late)
	log.Info("left to others", leftBehind(late)...)
	if text := logged.String(); strings.Count(text, "deadline") != 2 {
		t.Errorf("New trouble is not logged:\n%s", text)
	}
}

// TestStateCounts checks the counters, and which losses of a Lease are not logged.
func TestStateCounts(t *testing.T) {
	t.Parallel()
	layout := shard.Layout{Slots: 8}
	s := &state{log: slog.New(slog.DiscardHandler)}
	s.joined("a")
	if !s.count(Change{Kind: Gained, Slots: layout.Set(1, 2, 3)}) ||
		!s.count(Change{Kind: Released, Slots: layout.Set(1)}) {
		t.Error("a change of slots is not logged")
	}
	if !s.count(Change{Kind: Lost, Slots: layout.Set()}) {
		t.Error("a loss for another reason is not logged")
	}
	s.setError("renew", ErrForbidden)
	if s.count(Change{Kind: Lost, Slots: layout.Set()}) {
		t.Error("a missing right is logged twice")
	}
	if !s.count(Change{Kind: Lost, Slots: layout.Set(2)}) {
		t.Error("a loss of slots is not logged")
	}
	if got := s.facts(); got.id != "" || got.gained != 3 || got.moved != 1 || got.lost != 3 {
		t.Errorf("It knows %+v.", got)
	}
	first, second := errors.New("first"), errors.New("second")
	s.fail(first)
	s.fail(second)
	if err := s.fatal(); !errors.Is(err, first) || !errors.Is(err, second) {
		t.Errorf("It ends with %v.", err)
	}
}
