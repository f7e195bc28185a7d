package store_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
)

// drainings are the ways in which a drainer gets a goroutine. run lets it drain until the test ends.
var drainings = []struct {
	name string
	run  func(t *testing.T, s *store.Store, opt store.DrainOptions) *store.Drainer
}{
	{"owner", func(t *testing.T, s *store.Store, opt store.DrainOptions) *store.Drainer {
		opt.Owner = new(sync.WaitGroup)
		d := s.Drain(opt)
		t.Cleanup(func() { d.Close(); opt.Owner.Wait() })
		d.Start()
		return d
	}},
	{"inline", func(t *testing.T, s *store.Store, opt store.DrainOptions) *store.Drainer {
		opt.Inline = true
		d := s.Drain(opt)
		t.Cleanup(d.Close)
		d.Start()
		return d
	}},
	{"run", func(t *testing.T, s *store.Store, opt store.DrainOptions) *store.Drainer {
		var running sync.WaitGroup
		d := s.Drain(opt)
		t.Cleanup(func() { d.Close(); running.Wait() })
		running.Go(func() { _ = d.Run(context.Background()) })
		return d
	}},
	{"step", func(t *testing.T, s *store.Store, opt store.DrainOptions) *store.Drainer {
		var running sync.WaitGroup
		over, wake := make(chan struct{}), make(chan struct{}, 1)
		opt.Wake = func() {
			select {
			case wake <- struct{}{}:
			default: // it drains anyway
			}
		}
		d := s.Drain(opt)
		t.Cleanup(func() { d.Close(); close(over); running.Wait() })
		running.Go(func() {
			for {
				for d.Step() {
				}
				select {
				case <-wake:
				case <-over:
					return
				}
			}
		})
		return d
	}},
}

func TestDrainDeliversAllInOrder(t *testing.T) {
	t.Parallel()
	for _, way := range drainings {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, store.Options{})
				sink := s.Sink("")
				list(t, sink, 9, obj("a", "u1", 5))
				var got []string
				var busy atomic.Int32
				var sizes []int
				way.run(t, s, store.DrainOptions{Batch: 3, Consume: func(events []store.Event) bool {
					if busy.Add(1) > 1 {
						t.Error("two calls at once")
					}
					defer busy.Add(-1)
					got = append(got, summary(events)...)
					sizes = append(sizes, len(events))
					return true
				}})
				synctest.Wait()
				want := []string{"ADDED ns/a@5 initial", "SYNCED"}
				for version := 10; version < 60; version++ {
					apply(t, sink, source.Modified, obj("a", "u1", version))
					if version%7 == 0 {
						synctest.Wait() // the drainer is idle and is woken again
					}
					want = append(want, fmt.Sprintf("MODIFIED ns/a@%d<%d", version, max(5, version-1)))
				}
				want[2] = "MODIFIED ns/a@10<5"
				synctest.Wait()
				if d := cmp.Diff(want, got); d != "" {
					t.Error(d)
				}
				if slices.Max(sizes) > 3 {
					t.Errorf("batches of %v, want 3 at most", sizes)
				}
			})
		})
	}
}

func TestDrainFoldsForSlowConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, store.Options{})
		sink := s.Sink("")
		list(t, sink, 9, obj("a", "u1", 5))
		var delivered int
		var last string
		slow := make(chan struct{})
		d := drainings[0].run(t, s, store.DrainOptions{Consume: func(events []store.Event) bool {
			<-slow
			for _, e := range events {
				if e.Object != nil {
					delivered, last = delivered+1, e.Object.Version()
				}
			}
			return true
		}})
		const changes = 10 * store.MaxLag
		for version := 10; version < 10+changes; version++ {
			apply(t, sink, source.Modified, obj("a", "u1", version))
		}
		if lag := d.Lag(); lag > 2*store.MaxLag {
			t.Errorf("%d changes are pending, want them folded", lag)
		}
		close(slow)
		synctest.Wait()
		if delivered > 3*store.MaxLag || last != fmt.Sprint(9+changes) {
			t.Errorf("%d events, the last of version %s, want few and version %d", delivered, last, 9+changes)
		}
	})
}

func TestDrainEndsWhenItsConsumerStops(t *testing.T) {
	t.Parallel()
	for _, way := range drainings {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, store.Options{})
				sink := s.Sink("")
				list(t, sink, 9)
				calls := 0
				way.run(t, s, store.DrainOptions{Consume: func([]store.Event) bool { calls++; return false }})
				synctest.Wait()
				apply(t, sink, source.Added, obj("a", "u1", 10))
				synctest.Wait()
				if n := s.Stats().Subscribers; calls != 1 || n != 0 {
					t.Errorf("%d calls and %d subscribers, want one call and no subscriber", calls, n)
				}
			})
		})
	}
}

func TestDrainRunReturnsItsCause(t *testing.T) {
	t.Parallel()
	errStop := errors.New("stop")
	tests := []struct {
		reason string
		end    func(s *store.Store, d *store.Drainer, cancel context.CancelCauseFunc)
		more   bool
		want   error
	}{
		{
			"its context ends", func(_ *store.Store, _ *store.Drainer, cancel context.CancelCauseFunc) { cancel(errStop) }, true,
			errStop,
		},
		{
			"it is closed", func(_ *store.Store, d *store.Drainer, _ context.CancelCauseFunc) { d.Close() }, true,
			store.ErrClosed,
		},
		{
			"the store is closed", func(s *store.Store, _ *store.Drainer, _ context.CancelCauseFunc) { s.Close() }, true,
			store.ErrClosed,
		},
		{"the consumer returns false", func(*store.Store, *store.Drainer, context.CancelCauseFunc) {}, false, nil},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, store.Options{})
				list(t, s.Sink(""), 9)
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				d := s.Drain(store.DrainOptions{Consume: func([]store.Event) bool { return tc.more }})
				ended := make(chan error, 1)
				go func() { ended <- d.Run(ctx) }()
				synctest.Wait()
				tc.end(s, d, cancel)
				if err := <-ended; !errors.Is(err, tc.want) {
					t.Errorf("%v, want %v", err, tc.want)
				}
				if n := s.Stats().Subscribers; n != 0 {
					t.Errorf("%d subscribers are left", n)
				}
			})
		})
	}
}

func TestDrainOutlivesABrokenConsumer(t *testing.T) {
	t.Parallel()
	filter := func(breaks func()) store.DrainOptions {
		return store.DrainOptions{
			SubscribeOptions: store.SubscribeOptions{Filter: func(*store.Record) bool { breaks(); return true }},
			Consume:          func([]store.Event) bool { return true },
		}
	}
	tests := []struct {
		reason string
		opt    store.DrainOptions
		want   string // of the panic; empty if the goroutine ends
	}{
		{"a panic", store.DrainOptions{Consume: func([]store.Event) bool { panic("broken") }}, "broken"},
		{
			"the end of the goroutine",
			store.DrainOptions{Consume: func([]store.Event) bool { runtime.Goexit(); return true }},
			"",
		},
		{"the end of the goroutine in a filter", filter(runtime.Goexit), ""},
	}
	for _, tc := range tests {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStore(t, store.Options{})
				sink := s.Sink("")
				list(t, sink, 9, obj("a", "u1", 5))
				var reasons []string
				tc.opt.Failed = func(panicked error) { reasons = append(reasons, firstLine(panicked)) }
				drainings[0].run(t, s, tc.opt)
				synctest.Wait()
				if d := cmp.Diff([]string{tc.want}, reasons); d != "" {
					t.Error(d)
				}
				if n := s.Stats().Subscribers; n != 0 {
					t.Errorf("%d subscribers are left", n)
				}
				apply(t, sink, source.Modified, obj("a", "u1", 10)) // the store still works
				synctest.Wait()
				if len(reasons) != 1 {
					t.Errorf("Failed was called %d times", len(reasons))
				}
			})
		})
	}
}

// firstLine returns the value of a panic without the stack, and "" without a panic.
func firstLine(panicked error) string {
	if panicked == nil {
		return ""
	}
	line, _, _ := strings.Cut(panicked.Error(), "\n")
	return line
}

// TestDrainBreaksInline: a panic of an inline consumer does not reach the goroutine that fills the store.
func TestDrainBreaksInline(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	sink := s.Sink("")
	list(t, sink, 9)
	var reason string
	d := s.Drain(store.DrainOptions{
		Inline: true, Failed: func(panicked error) { reason = firstLine(panicked) },
		Consume: func(events []store.Event) bool {
			if events[0].Object != nil {
				panic("broken")
			}
			return true
		},
	})
	d.Start()
	apply(t, sink, source.Added, obj("a", "u1", 10))
	if n := s.Stats().Subscribers; reason != "broken" || n != 0 {
		t.Errorf("reason %q and %d subscribers, want that of the panic and none", reason, n)
	}
	apply(t, sink, source.Added, obj("b", "u2", 11))
	if s.Len() != 2 {
		t.Errorf("%d objects, want both", s.Len())
	}
}

// TestDrainMissesNoWake: a wake between the last look of a drainer and its sleep is not lost. Otherwise the drainer
// would sleep for ever.
func TestDrainMissesNoWake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, store.Options{})
		sink := s.Sink("")
		list(t, sink, 9, obj("a", "u1", 5))
		var last string
		drainings[0].run(t, s, store.DrainOptions{Consume: func(events []store.Event) bool {
			if e := events[len(events)-1]; e.Object != nil {
				last = e.Object.Version()
			}
			return true
		}})
		const until = 30_000
		for version := 10; version <= until; version++ {
			apply(t, sink, source.Modified, obj("a", "u1", version))
		}
		synctest.Wait()
		if last != fmt.Sprint(until) {
			t.Errorf("it got version %s last, want %d", last, until)
		}
	})
}

// TestDrainBeginsNothingAfterClose: a drainer starts no goroutine after Close, so the owner can wait for all of them
// after it.
func TestDrainBeginsNothingAfterClose(t *testing.T) {
	t.Parallel()
	s := newStore(t, store.Options{})
	var owner sync.WaitGroup
	d := s.Drain(store.DrainOptions{Owner: &owner, Consume: func([]store.Event) bool { return true }})
	if !store.Begin(d) {
		t.Error("it did not begin before it was closed")
	}
	d.Close()
	owner.Wait()
	if store.Begin(d) {
		t.Error("it began after it was closed")
	}
}
