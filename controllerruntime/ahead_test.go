package controllerruntime

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/fairlead-io/fairlead/internal/store"
)

// numbered returns n events, of which event i has the count i.
func numbered(n int) []store.Event {
	events := make([]store.Event, n)
	for i := range events {
		events[i].Count = i
	}
	return events
}

// severalProcessors lets Go use two processors at least. Otherwise nothing is decoded ahead.
func severalProcessors(t *testing.T) {
	t.Helper()
	was := runtime.GOMAXPROCS(max(2, runtime.NumCPU()))
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
}

func TestAheadMeetsTheHandler(t *testing.T) {
	severalProcessors(t)
	synctest.Test(t, func(t *testing.T) {
		var a ahead
		var got []int
		step := make(chan struct{})
		a.start(numbered(aheadMin), func(e *store.Event) (now, prior any) {
			<-step
			got = append(got, e.Count)
			return nil, nil
		})
		a.passed(0)
		step <- struct{}{}
		step <- struct{}{}
		synctest.Wait()
		a.passed(aheadMin - 4) // the handler is at the event after the one that is being decoded
		close(step)
		synctest.Wait()
		if want := []int{aheadMin - 1, aheadMin - 2, aheadMin - 3}; !slices.Equal(got, want) {
			t.Errorf("decoded %v, want %v", got, want)
		}
		a.stop(aheadMin)
	})
}

func TestAheadStops(t *testing.T) {
	severalProcessors(t)
	synctest.Test(t, func(t *testing.T) {
		var a ahead
		calls, stopped := 0, false
		step := make(chan struct{})
		a.start(numbered(aheadMin), func(*store.Event) (now, prior any) {
			<-step
			calls++
			return nil, nil
		})
		go func() {
			a.stop(aheadMin)
			stopped = true
		}()
		synctest.Wait()
		if stopped {
			t.Error("stopped while an object is being decoded")
		}
		step <- struct{}{}
		synctest.Wait()
		if !stopped || calls != 1 {
			t.Errorf("stopped %v after %d calls", stopped, calls)
		}
	})
}

func TestAheadOfAFailure(t *testing.T) {
	severalProcessors(t)
	for _, tt := range []struct {
		reason string
		events int
		decode func(calls int)
		calls  int
	}{
		{"a panic is that of the handler", aheadMin, func(int) { panic("boom") }, 1},
		{"the end of the goroutine", aheadMin, func(int) { runtime.Goexit() }, 1},
		{"few events are not worth a goroutine", aheadMin - 1, func(int) {}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var a ahead
			calls := 0
			a.start(numbered(tt.events), func(*store.Event) (now, prior any) {
				calls++
				tt.decode(calls)
				return nil, nil
			})
			synctest.Wait()
			a.stop(tt.events)
			if calls != tt.calls {
				t.Errorf("%s: decoded %d times, want %d", tt.reason, calls, tt.calls)
			}
		})
	}
}
