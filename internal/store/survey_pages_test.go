package store

import (
	"errors"
	"testing"

	"github.com/fairlead-io/fairlead/internal/source"
)

// TestSurveyReachedBetweenPages: a survey ends when the watch reaches its version while the next page is requested.
func TestSurveyReachedBetweenPages(t *testing.T) {
	t.Parallel()
	s := New(Options{Namespaced: true})
	defer s.Close()
	sink := s.Sink("")
	sink.Replace().Commit(source.Commit{Version: "1"})
	v := s.waits.surveys[""]
	y := &survey{number: 1, lists: v.lists, over: make(chan struct{})}
	w := &waiter{scope: "", barrier: true, done: make(chan error, 1)}
	s.publisher.lock()
	s.waits.waiters = append(s.waits.waiters, w)
	s.publisher.unlock()
	if err := v.page(t.Context(), y, "5", true); err != nil {
		t.Fatalf("after the first page: %v", err)
	}
	s.publisher.lock()
	v.cov.version = parseVersion("5")
	s.waits.notify()
	s.publisher.unlock()
	if err := v.page(t.Context(), y, "5", false); !errors.Is(err, errEnough) {
		t.Errorf("the second page: %v", err)
	}
}
