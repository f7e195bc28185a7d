package testlog_test

import (
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBook(t *testing.T) {
	t.Parallel()
	var b testlog.Book
	var writers sync.WaitGroup
	for range 10 {
		writers.Go(func() { b.Logger().Info("hello") })
	}
	writers.Wait()
	b.Logger().Debug("not this")
	if got := b.String(); strings.Count(got, "msg=hello\n") != 10 || strings.Contains(got, "not this") {
		t.Errorf("the book has %q", got)
	}
	if taken, left := b.Take(), b.String(); strings.Count(taken, "\n") != 10 || left != "" {
		t.Errorf("taken %q, left %q", taken, left)
	}
}
