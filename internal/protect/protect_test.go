package protect_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/protect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func explode(v any) { panic(v) }

func TestCallOr(t *testing.T) {
	t.Parallel()
	cause := errors.New("boom")
	exit := runtime.Goexit
	for _, tc := range []struct {
		reason  string
		fn      func()
		value   any // the value of the panic
		ended   bool
		returns bool
	}{
		{"it returns", func() {}, nil, false, true},
		{"it panics", func() { explode("boom") }, "boom", false, true},
		{"it panics with an error", func() { explode(cause) }, cause, false, true},
		{"it ends its goroutine", func() { exit() }, nil, true, false},
		{"it panics and a deferred call ends its goroutine", func() { defer exit(); explode("boom") }, nil, true, false},
		{
			"it ends its goroutine and a deferred call panics", func() { defer explode("late"); exit() }, nil, true,
			false,
		},
	} {
		var p *protect.Panic
		ended, returns := false, false
		left := make(chan struct{})
		go func() {
			defer close(left)
			p = protect.CallOr(tc.fn, func() { ended = true })
			returns = true
		}()
		<-left
		if ended != tc.ended || returns != tc.returns || (p != nil) != (tc.value != nil) {
			t.Errorf("%s: ended %v, returns %v, panic %v", tc.reason, ended, returns, p)
		}
		if p == nil {
			continue
		}
		if p.Value != tc.value || !strings.Contains(string(p.Stack), "protect_test.explode") {
			t.Errorf("%s: panic %v", tc.reason, p)
		}
	}
}

func TestAPanicIsNoErrorOfItsValue(t *testing.T) {
	t.Parallel()
	cause := errors.New("boom")
	p := protect.Call(func() { explode(cause) })
	if errors.Is(p, cause) || !strings.HasPrefix(p.Error(), "boom\n") {
		t.Errorf("got %v", p)
	}
}

func TestAllocations(t *testing.T) {
	n := 0
	if got := testing.AllocsPerRun(100, func() { _ = protect.CallOr(func() { n++ }, func() { n-- }) }); got != 0 ||
		n == 0 {
		t.Errorf("%v allocations, %d calls", got, n)
	}
}
