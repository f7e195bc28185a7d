package observe_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

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
		{"no mask selects all events", 0, []string{initialX, initialY, synchronized, added, modified, deleted}},
		{"initial objects reach observers of Added", observe.OnAdded, []string{initialX, initialY, added}},
		{"only later objects", observe.OnAdded | observe.Live, []string{added}},
		{"only initial objects", observe.OnAdded | observe.Initial, []string{initialX, initialY}},
		{"initial objects and Synchronized", observe.Initial, []string{initialX, initialY, synchronized}},
		{"live restricts objects only", observe.Live, []string{synchronized, added, modified, deleted}},
		{"an observer without Added still gets priors", observe.OnModified, []string{modified}},
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
				if n := slices.Index(lines, initialY); n == 0 { // initial objects have no order
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
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized", "Resync a/x 1=1"},
			slices.Compact(slices.Clone(lines))); d != "" {
			t.Error(d)
		}
		if n := len(lines) - 2; n < 9 || n > 11 {
			t.Errorf("%d resyncs in 10 minutes", n)
		}
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, other.take()); d != "" {
			t.Errorf("an observer without a resync: %s", d)
		}
	})
}

// A slow and a fast observer get the same instances, and each has its own prior.
func TestPriorIsTheLastDeliveredState(t *testing.T) {
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
		<-begun                  // the handler of the initial object has begun
		for i := range 2 * 400 { // changes that the slow observer has not taken are folded
			if i%100 == 0 {
				synctest.Wait() // the fast observer has taken all changes, so none of its own are folded
			}
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
				t.Errorf("slow: %q, but the last state was %q", line, last[key])
			}
			last[key] = now
		}
		if d := cmp.Diff(map[string]string{"a/x": "801", "a/y": "801"}, last); d != "" {
			t.Errorf("slow did not end at the latest state: %s", d)
		}
	})
}

// Synchronized comes once, after the observer's own initial objects. Here these are handled late, out of order and with
// a retry.
func TestSynchronizedComesOnceAndLast(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		opts   []observe.Option
	}{
		{"sync", nil},
		{"async", []observe.Option{observe.Async(3)}},
		{"async with more room than objects", []observe.Option{observe.Async(100)}},
		{"an executor", []observe.Option{observe.Via(3, func(fn func()) { go fn() })}},
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
				h.put("a/0", "2") // during the initial objects
				if err := h.WaitSynced(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-o.Synced()
				h.put("a/1", "2")
				for _, w := range h.server.Watches(apiserver.Match{Resource: "configmaps"}) {
					w.Cut() // a new watch sends no further Synchronized
				}
				time.Sleep(time.Minute)
				if n := synchronized.Load(); n != 1 {
					t.Errorf("synchronized %d times", n)
				}
			})
		})
	}
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
		observe.On(h, Maps, async.observe, observe.Async(4),
			observe.Only(observe.OnEpoch|observe.OnModified|observe.OnDeleted))
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
