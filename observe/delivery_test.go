package observe_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

func TestMasks(t *testing.T) {
	t.Parallel()
	const (
		initialX, initialY = "Added initial a/x =1", "Added initial a/y =1"
		synchronized       = "Synchronized"
		added, modified    = "Added a/z =1", "Modified a/x 1=2"
		deleted            = "Deleted a/y 1=1"
	)
	for _, tc := range []struct {
		reason string
		mask   observe.Mask
		want   []string
	}{
		{"no mask is all", 0, []string{initialX, initialY, synchronized, added, modified, deleted}},
		{"initial objects reach observers of Added", observe.OnAdded, []string{initialX, initialY, added}},
		{"only what appears later", observe.OnAdded | observe.Live, []string{added}},
		{"only what was there", observe.OnAdded | observe.Initial, []string{initialX, initialY}},
		{"what was there, and its end", observe.Initial, []string{initialX, initialY, synchronized}},
		{"live restricts objects only", observe.Live, []string{synchronized, added, modified, deleted}},
		{"priors are kept for an observer that is not called for what is added", observe.OnModified, []string{modified}},
		{"deletions have their last state", observe.OnDeleted, []string{deleted}},
		{"the synchronization alone", observe.OnSynchronized, []string{synchronized}},
		{"several", observe.OnModified | observe.OnDeleted, []string{modified, deleted}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				h.put("a/x", "1")
				h.put("a/y", "1")
				var got story
				sourceOf(h, Maps)
				observe.On(h, Maps, got.observe, observe.Only(tc.mask))
				h.start()
				h.put("a/z", "1")
				synctest.Wait()
				h.put("a/x", "2")
				synctest.Wait()
				h.remove("a/y")
				synctest.Wait()
				lines := got.take()
				if n := slices.Index(lines, initialY); n == 0 { // initial objects come in no particular order
					lines[0], lines[1] = lines[1], lines[0]
				}
				if d := cmp.Diff(tc.want, lines); d != "" {
					t.Error(d)
				}
			})
		})
	}
}

func TestResyncGivesTheKnownStateAgain(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var got, other story
		h.put("a/x", "1")
		sourceOf(h, Maps)
		observe.On(h, Maps, got.observe, observe.Every(time.Minute))
		observe.On(h, Maps, other.observe)
		h.start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		lines := got.take()
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized", "Resync a/x 1=1"}, slices.Compact(slices.Clone(lines))); d != "" {
			t.Error(d)
		}
		if n := len(lines) - 2; n < 9 || n > 11 {
			t.Errorf("%d times in 10 minutes", n)
		}
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, other.take()); d != "" {
			t.Errorf("an observer that did not ask: %s", d)
		}
	})
}

// A slow and a fast observer are given the same instances; each has its own prior.
func TestPriorIsWhatThisObserverWasGiven(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		var fast, slow story
		begun, release := make(chan struct{}, 1), make(chan struct{})
		sourceOf(h, Maps)
		observe.On(h, Maps, fast.observe, observe.Every(time.Hour))
		observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			select {
			case begun <- struct{}{}:
			default:
			}
			<-release
			return slow.observe(ctx, e)
		}, observe.Async(1))
		h.start()
		<-begun                  // the initial object is being handled
		for i := range 2 * 400 { // more than the log holds, so that the changes are folded
			h.put("a/x", fmt.Sprint(i+2))
			h.put("a/y", fmt.Sprint(i+2))
		}
		synctest.Wait()
		close(release)
		synctest.Wait()
		for i, line := range fast.take() {
			want := map[int]string{0: "Added initial a/x =1", 1: "Synchronized", 2: "Modified a/x 1=2", 3: "Added a/y =2"}[i]
			if x := fmt.Sprintf("Modified a/x %d=%d", i/2, i/2+1); i > 3 && i%2 == 0 {
				want = x
			} else if i > 3 {
				want = fmt.Sprintf("Modified a/y %d=%d", i/2, i/2+1)
			}
			if line != want {
				t.Fatalf("fast: event %d is %q, want %q", i, line, want)
			}
		}
		last := map[string]string{}
		for _, line := range slow.take() {
			fields := strings.Fields(line)
			if len(fields) < 2 {
				continue
			}
			key := fields[len(fields)-2]
			prior, now, _ := strings.Cut(fields[len(fields)-1], "=")
			if prior != last[key] {
				t.Errorf("slow: %q, but it was given %q last", line, last[key])
			}
			last[key] = now
		}
		if d := cmp.Diff(map[string]string{"a/x": "801", "a/y": "801"}, last); d != "" {
			t.Errorf("slow did not end at the latest state: %s", d)
		}
	})
}

// Events of one observer come one at a time and in the order of the changes, whatever an async one beside it does.
func TestAsyncObserverDoesNotDisturbSyncOnes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var calls atomic.Int32
		var got story
		sourceOf(h, Maps)
		block := make(chan struct{})
		observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			select {
			case <-block:
			case <-ctx.Done():
			}
			return errors.New("never works")
		}, observe.Async(4), observe.Name("blocked"))
		observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			if calls.Add(1) > 1 {
				t.Error("a sync observer is called twice at the same time")
			}
			defer calls.Add(-1)
			return got.observe(ctx, e)
		})
		h.start()
		want := []string{"Synchronized"}
		for i := range 200 {
			h.put("a/"+fmt.Sprint(i%7), fmt.Sprint(i))
			if i < 7 {
				want = append(want, fmt.Sprintf("Added a/%d =%d", i, i))
			} else {
				want = append(want, fmt.Sprintf("Modified a/%d %d=%d", i%7, i-7, i))
			}
		}
		synctest.Wait()
		if d := cmp.Diff(want, got.take()); d != "" {
			t.Error(d)
		}
		close(block)
	})
}

func TestAsyncKeysRunTogetherAndInOrder(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var mu sync.Mutex
		busy, peak, perKey := 0, 0, map[string]string{}
		gate := make(chan struct{})
		sourceOf(h, Maps)
		observe.On(h, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Type == observe.Synchronized {
				return nil
			}
			mu.Lock()
			busy++
			peak = max(peak, busy)
			if perKey[e.Key.Name] == "busy" {
				t.Errorf("%s is handled twice at the same time", e.Key)
			}
			before := perKey[e.Key.Name]
			perKey[e.Key.Name] = "busy"
			mu.Unlock()
			<-gate
			mu.Lock()
			defer mu.Unlock()
			busy--
			if prior := e.Prior(); prior != nil && prior.Data["v"] != before {
				t.Errorf("%s: prior is %s, handled last was %s", e.Key, prior.Data["v"], before)
			}
			perKey[e.Key.Name] = e.Object().Data["v"]
			return nil
		}, observe.Async(3))
		h.start()
		for i := range 50 {
			h.put("a/"+fmt.Sprint(i%5), fmt.Sprint(i))
		}
		synctest.Wait()
		close(gate)
		synctest.Wait()
		if peak != 3 {
			t.Errorf("%d keys were handled at the same time, want 3", peak)
		}
		if d := cmp.Diff(map[string]string{"0": "45", "1": "46", "2": "47", "3": "48", "4": "49"}, perKey); d != "" {
			t.Error(d)
		}
	})
}

// One key that takes for ever must not keep others waiting, neither in the batch that it came with nor in later ones.
func TestSlowKeyDelaysNoOther(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var got story
		release := make(chan struct{})
		sourceOf(h, Maps)
		observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Key.Name == "slow" {
				<-release
			}
			return got.observe(ctx, e)
		}, observe.Async(2))
		h.start()
		h.put("a/slow", "1")
		synctest.Wait()
		got.take()
		for i := range 20 {
			h.put("a/slow", fmt.Sprint(i))
			h.remove("a/slow")
			h.put("a/slow", "last")
			h.put("a/quick", fmt.Sprint(i))
			synctest.Wait()
			if lines := got.take(); len(lines) != 1 || !strings.HasSuffix(lines[0], fmt.Sprintf("=%d", i)) {
				t.Fatalf("change %d of another key: %q", i, lines)
			}
		}
		close(release)
		synctest.Wait()
		want := []string{"Added a/slow =1", "Deleted inferred a/slow 1=1", "Added a/slow =last"}
		lines := got.take()
		for i := range lines {
			lines[i] = strings.Replace(lines[i], "Deleted a/slow 1=0", want[1], 1) // the final state is known or not
		}
		if d := cmp.Diff(want, lines); d != "" {
			t.Error(d)
		}
	})
}

// Synchronized comes once, after the observer's own initial objects, which here are handled late, out of order and with a
// retry.
func TestSynchronizedComesOnceAndLast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		opts   []observe.Option
	}{
		{"sync", nil},
		{"async", []observe.Option{observe.Async(3)}},
		{"async with more room than objects", []observe.Option{observe.Async(100)}},
		{"an executor of one's own", []observe.Option{observe.Via(3, func(fn func()) { go fn() })}},
		{"an executor that runs at once", []observe.Option{observe.Via(3, func(fn func()) { fn() })}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				for i := range 10 {
					h.put("a/"+fmt.Sprint(i), "1")
				}
				var handled, failed, synchronized atomic.Int32
				sourceOf(h, Maps)
				o := observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
					if e.Type == observe.Synchronized {
						synchronized.Add(1)
						if n := handled.Load(); n != 10 {
							t.Errorf("synchronized after %d of 10 objects", n)
						}
						return nil
					}
					if e.Key.Name == "3" && failed.Add(1) < 4 {
						return errors.New("not yet")
					}
					if e.Key.Name != "5" {
						time.Sleep(time.Second)
					}
					handled.Add(1)
					return nil
				}, tc.opts...)
				h.start()
				h.put("a/0", "2") // while initial objects are being handled
				if err := h.WaitSynced(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-o.Synced()
				h.put("a/1", "2")
				for _, w := range h.server.Watches(apiserver.Match{Resource: "configmaps"}) {
					w.Cut() // a new watch synchronizes nobody again
				}
				time.Sleep(time.Minute)
				if n := synchronized.Load(); n != 1 {
					t.Errorf("synchronized %d times", n)
				}
			})
		})
	}
}

func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	panicking := func() error { panic("oh no") }
	failing := func() error { return errors.New("cannot") }
	for _, tc := range []struct {
		reason     string
		fail       func() error
		opts       []observe.Option
		calls      int // for the event that fails
		goesOn     bool
		stats      observe.Stats
		logged     []string
		describing string
	}{
		{
			"retry, then skip", failing, nil, 5, true,
			observe.Stats{Handled: 2, Failed: 1, Retried: 4},
			[]string{"observer failed", "event given up", "attempt=5"},
			"1 given up",
		},
		{
			"retry as often as wanted", failing,
			[]observe.Option{observe.OnFailure(observe.Retry, 2)},
			2, true,
			observe.Stats{Handled: 2, Failed: 1, Retried: 1},
			[]string{"attempt=2"},
			"",
		},
		{
			"skip", failing,
			[]observe.Option{observe.OnFailure(observe.Skip, 0)},
			1, true,
			observe.Stats{Handled: 2, Failed: 1},
			[]string{"event given up"},
			"",
		},
		{
			"stop", failing,
			[]observe.Option{observe.OnFailure(observe.Stop, 0)},
			1, false,
			observe.Stats{Handled: 1, Failed: 1},
			[]string{"observer stopped"},
			"stopped: cannot",
		},
		{
			"a panic is a failure", panicking,
			[]observe.Option{observe.OnFailure(observe.Retry, 3)},
			3, true,
			observe.Stats{Handled: 2, Failed: 1, Retried: 2},
			[]string{"observer panicked: oh no", "stack=", "delivery_test.go"},
			"",
		},
		{
			"a panic with stop", panicking,
			[]observe.Option{observe.OnFailure(observe.Stop, 0)},
			1, false,
			observe.Stats{Handled: 1, Failed: 1},
			[]string{"observer stopped"},
			"stopped: observer panicked: oh no",
		},
		{
			"an async one", panicking,
			[]observe.Option{observe.OnFailure(observe.Skip, 0), observe.Async(2)},
			1, true,
			observe.Stats{Handled: 2, Failed: 1},
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
					t.Errorf("goes on: %v", goesOn)
				}
				d := h.Describe()
				stats := d.Sources[0].Observers[0].Stats
				stats.Busy = 0
				if d := cmp.Diff(tc.stats, stats); d != "" {
					t.Error(d)
				}
				for _, want := range tc.logged {
					if !strings.Contains(h.log.String(), want) {
						t.Errorf("the log does not say %q:\n%s", want, h.log)
					}
				}
				if !strings.Contains(d.String(), tc.describing) {
					t.Errorf("the description does not say %q:\n%s", tc.describing, d)
				}
			})
		})
	}
}

// A handler may call runtime.Goexit, as t.FailNow does: it ends that observer and nothing else.
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

func TestObjectsThatCannotBeDecodedAreNotRetried(t *testing.T) {
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
		observe.Source[Widget](h, "widgets")
		observe.On(h, "widgets", func(_ context.Context, e observe.Event[Widget]) error {
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
			t.Errorf("who does not read the bad part is told: %s", d)
		}
		if n := strings.Count(h.log.String(), "event given up"); n != 2 {
			t.Errorf("reported %d times, want once for each of two:\n%s", n, h.log)
		}
	})
}

func TestEpochComesToEveryObserver(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		restored := h.server.Revision()
		h.put("a/x", "2")
		h.put("a/y", "1")
		var sync, async, derived story
		sourceOf(h, Maps)
		observe.Map(h, "mapped", Maps, func(c *corev1.ConfigMap) *corev1.ConfigMap { return c })
		observe.On(h, Maps, sync.observe, observe.Only(observe.OnEpoch|observe.OnModified|observe.OnDeleted))
		observe.On(h, Maps, async.observe, observe.Async(4), observe.Only(observe.OnEpoch|observe.OnModified|observe.OnDeleted))
		observe.On(h, "mapped", derived.observe, observe.Only(observe.OnEpoch))
		h.start()
		if err := h.server.Rollback(restored); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want := []string{"Epoch", "Deleted inferred a/y 1=1", "Modified a/x 2=1"}
		slices.Sort(want)
		for name, got := range map[string][]string{"sync": sync.take(), "async": async.take()} {
			if len(got) == 0 || got[0] != "Epoch" {
				t.Errorf("%s: %q does not begin with the epoch", name, got)
			}
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
		if d := cmp.Diff([]string{"Epoch"}, derived.take()); d != "" {
			t.Errorf("derived: %s", d)
		}
	})
}
