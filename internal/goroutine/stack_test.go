package goroutine_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/goroutine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func waiting(id chan<- goroutine.ID, until <-chan struct{}) {
	id <- goroutine.Current()
	<-until
}

func TestStacks(t *testing.T) {
	t.Parallel()
	ids, until, left := make(chan goroutine.ID), make(chan struct{}), make(chan struct{})
	go func() { defer close(left); waiting(ids, until) }()
	own, other := goroutine.Current(), <-ids
	if got := goroutine.Stacks(); got != "" {
		t.Errorf("without a goroutine: %s", got)
	}
	one := goroutine.Stacks(other)
	if !strings.HasPrefix(one, string(other)) || !strings.Contains(one, "goroutine_test.waiting") ||
		strings.Contains(one, "TestStacks(") {
		t.Errorf("of one waiting goroutine:\n%s", one)
	}
	both := goroutine.Stacks(own, other)
	if strings.Count(both, "\n\n") != 1 || !strings.Contains(both, "goroutine_test.waiting") ||
		!strings.Contains(both, "TestStacks(") {
		t.Errorf("of two waiting goroutines:\n%s", both)
	}
	close(until)
	<-left
	if got := goroutine.Stacks(own); strings.Contains(got, "\n\n") || !strings.Contains(got, "TestStacks(") {
		t.Errorf("of the test's goroutine:\n%s", got)
	}
}

func TestBubble(t *testing.T) {
	t.Parallel()
	outside, until := make(chan goroutine.ID), make(chan struct{})
	go waiting(outside, until)
	<-outside
	defer close(until)
	synctest.Test(t, func(t *testing.T) {
		if got := goroutine.Bubble(); len(got) > 0 {
			t.Errorf("a bubble with one goroutine has %q", got)
		}
		ids, until := make(chan goroutine.ID), make(chan struct{})
		go waiting(ids, until)
		id := <-ids
		if got := goroutine.Bubble(); len(got) != 1 || !strings.HasPrefix(got[0], string(id)) {
			t.Errorf("a bubble with one other goroutine, %s, has %q", id, got)
		}
		close(until)
		synctest.Wait()
	})
}
