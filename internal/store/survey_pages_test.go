package store

import (
	"errors"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
)

// TestSurveyReachedBetweenPages: a survey that the watch has come up to while its next page was on the way is over.
func TestSurveyReachedBetweenPages(t *testing.T) {
	t.Parallel()
	s := New(Options{Namespaced: true})
	defer s.Close()
	sink := s.Sink("")
	sink.Replace().Commit(source.Commit{Version: "1"})
	sc := s.scopes[""]
	y := &survey{number: 1, lists: sc.surveys.lists, over: make(chan struct{})}
	w := &waiter{scope: "", barrier: true, done: make(chan error, 1)}
	s.mu.Lock()
	s.waiters = append(s.waiters, w)
	s.mu.Unlock()
	if err := sc.page(t.Context(), y, "5", true); err != nil {
		t.Fatalf("after the first page: %v", err)
	}
	s.mu.Lock()
	sc.version = parseVersion("5")
	s.notifyWaiters()
	s.mu.Unlock()
	if err := sc.page(t.Context(), y, "5", false); !errors.Is(err, errEnough) {
		t.Errorf("the second page: %v", err)
	}
}
