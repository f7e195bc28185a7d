package observe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/observe"
)

func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	panicking := func() error { panic("oh no") }
	failing := func() error { return errors.New("cannot") }
	for _, tc := range []struct {
		reason     string
		fail       func() error
		opts       []observe.Option
		calls      int // for the failing event
		goesOn     bool
		stats      inspect.Stats
		logged     []string
		describing string
	}{
		{
			"retry, then skip", failing, nil, 5, true,
			inspect.Stats{Handled: 2, Failed: 1, Retried: 4},
			[]string{"observer failed", "event given up", "attempt=5"},
			"1 given up",
		},
		{
			"retry as often as declared", failing,
			[]observe.Option{observe.OnFailure(observe.Retry, 2)},
			2, true,
			inspect.Stats{Handled: 2, Failed: 1, Retried: 1},
			[]string{"attempt=2"},
			"",
		},
		{
			"skip", failing,
			[]observe.Option{observe.OnFailure(observe.Skip, 0)},
			1, true,
			inspect.Stats{Handled: 2, Failed: 1},
			[]string{"event given up"},
			"",
		},
		{
			"stop", failing,
			[]observe.Option{observe.OnFailure(observe.Stop, 0)},
			1, false,
			inspect.Stats{Handled: 1, Failed: 1},
			[]string{"observer stopped"},
			"stopped: cannot",
		},
		{
			"a panic is a failure", panicking,
			[]observe.Option{observe.OnFailure(observe.Retry, 3)},
			3, true,
			inspect.Stats{Handled: 2, Failed: 1, Retried: 2},
			[]string{"observer panicked: oh no", "stack=", "failure_test.go"},
			"",
		},
		{
			"a panic with stop", panicking,
			[]observe.Option{observe.OnFailure(observe.Stop, 0)},
			1, false,
			inspect.Stats{Handled: 1, Failed: 1},
			[]string{"observer stopped"},
			"stopped: observer panicked: oh no",
		},
		{
			"an async observer", panicking,
			[]observe.Option{observe.OnFailure(observe.Skip, 0), observe.Async(2)},
			1, true,
			inspect.Stats{Handled: 2, Failed: 1},
			[]string{"event given up"},
			"",
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				var calls atomic.Int32
				var got, other story
				sourceOf(h, Maps)
				observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
					if e.Key.Name == "bad" {
						calls.Add(1)
						return tc.fail()
					}
					return got.observe(ctx, e)
				}, append(tc.opts, observe.Name("fails"))...)
				observe.On(h, Maps, other.observe)
				h.start()
				h.put("a/bad", "1")
				h.put("a/good", "1")
				synctest.Wait()
				if d := cmp.Diff([]string{"Synchronized", "Added a/bad =1", "Added a/good =1"}, other.take()); d != "" {
					t.Errorf("another observer was disturbed: %s", d)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := int(calls.Load()); n != tc.calls {
					t.Errorf("called %d times, want %d", n, tc.calls)
				}
				if goesOn := slices.Contains(got.take(), "Added a/good =1"); goesOn != tc.goesOn {
					t.Errorf("continues: %v", goesOn)
				}
				d := h.Describe()
				stats := d.Sources[0].Observers[0].Stats
				stats.Busy = 0
				if d := cmp.Diff(tc.stats, stats); d != "" {
					t.Error(d)
				}
				for _, want := range tc.logged {
					if !strings.Contains(h.log.String(), want) {
						t.Errorf("the log lacks %q:\n%s", want, h.log)
					}
				}
				if !strings.Contains(d.String(), tc.describing) {
					t.Errorf("the description lacks %q:\n%s", tc.describing, d)
				}
			})
		})
	}
}

// A handler may call runtime.Goexit, as t.FailNow does. That ends its observer and has no other effect.
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]observe.Option{nil, {observe.Async(1)}} {
		bubble(t, func(t *testing.T, h *host) {
			var other story
			sourceOf(h, Maps)
			observe.On(h, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Key.Name == "x" {
					new(testing.T).FailNow()
				}
				return nil
			}, opts...)
			observe.On(h, Maps, other.observe)
			h.start()
			h.put("a/x", "1")
			h.put("a/y", "1")
			synctest.Wait()
			if d := cmp.Diff([]string{"Synchronized", "Added a/x =1", "Added a/y =1"}, other.take()); d != "" {
				t.Error(d)
			}
			if d := h.Describe(); !strings.Contains(d.String(), "runtime.Goexit") {
				t.Errorf("not described:\n%s", d)
			}
		})
	}
}

func TestUndecodableObjectsAreNotRetried(t *testing.T) {
	t.Parallel()
	t.Run("a type that decodes itself", undecodable[Widget])
	t.Run("a type that is checked before the decoding", undecodable[Gadget])
}

func undecodable[T any, P observe.Object[T]](t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		if _, err := h.server.Put(widget("bad", "red")); err != nil {
			t.Fatal(err)
		}
		if err := h.server.Poison(widgets, "default", "bad", func(raw []byte) []byte {
			return []byte(strings.Replace(string(raw), `"red"`, `{}`, 1))
		}); err != nil {
			t.Fatal(err)
		}
		var typed, metadata, objects []string
		observe.Source[T, P](h, "widgets")
		observe.On[T, P](h, "widgets", func(_ context.Context, e observe.Event[T]) error {
			typed = append(typed, e.Type.String())
			return nil
		})
		observe.On(h, "widgets", func(_ context.Context, e observe.Event[metav1.PartialObjectMetadata]) error {
			if e.Object() != nil {
				metadata = append(metadata, e.Object().Name)
			}
			return nil
		})
		observe.OnObject(h, "widgets", func(_ context.Context, e observe.ObjectEvent) error {
			objects = append(objects, e.Type.String())
			return nil
		})
		h.start()
		if d := cmp.Diff([]string{"Synchronized"}, typed); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"Synchronized"}, objects); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"bad"}, metadata); d != "" {
			t.Errorf("an observer that does not read the bad part: %s", d)
		}
		if n := strings.Count(h.log.String(), "event given up"); n != 2 {
			t.Errorf("reported %d times, want once for each of two:\n%s", n, h.log)
		}
	})
}

// The retries of observers that fail together, for example because a service is down, are spread over time.
func TestRetriesAreSpread(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		const observers = 50
		var mu sync.Mutex
		var waits [4]map[time.Duration]int
		sourceOf(h, Maps)
		for range observers {
			var last time.Time
			attempt := 0
			observe.On(h, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
				mu.Lock()
				defer mu.Unlock()
				if attempt > 0 {
					if waits[attempt-1] == nil {
						waits[attempt-1] = map[time.Duration]int{}
					}
					waits[attempt-1][time.Since(last)]++
				}
				attempt++
				last = time.Now()
				return errors.New("cannot")
			})
		}
		h.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, ceiling := range []time.Duration{
			400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond,
		} {
			if len(waits[i]) < observers/2 {
				t.Errorf("retry %d comes after %d different times for %d observers", i+1, len(waits[i]), observers)
			}
			for d := range waits[i] {
				if d < 200*time.Millisecond || d > ceiling {
					t.Errorf("retry %d comes after %v, want 200ms to %v", i+1, d, ceiling)
				}
			}
		}
	})
}

// An executor that panics, before or after it has run its function, loses no event.
func TestExecutorThatPanics(t *testing.T) {
	t.Parallel()
	for reason, execute := range map[string]func(func()){
		"before":                    func(func()) { panic("no workers") },
		"after":                     func(fn func()) { fn(); panic("cannot count") },
		"after it began a function": func(fn func()) { go fn(); panic("cannot count") },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				var got story
				sourceOf(h, Maps)
				observe.On(h, Maps, got.observe, observe.Via(2, execute))
				h.start()
				for _, v := range []string{"1", "2"} {
					h.put("a/x", v)
					synctest.Wait()
				}
				if d := cmp.Diff([]string{"Synchronized", "Added a/x =1", "Modified a/x 1=2"}, got.take()); d != "" {
					t.Error(d)
				}
				if !strings.Contains(h.log.String(), "executor panicked") {
					t.Errorf("the panic is not reported:\n%s", h.log)
				}
			})
		})
	}
}
