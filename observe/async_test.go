package observe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/observe"
)

// One observer gets its events one at a time and in order, whatever an async observer beside it does.
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
				t.Errorf("%s: prior is %s, want %s", e.Key, prior.Data["v"], before)
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

// A key whose handler blocks must not delay other keys, neither of the same batch nor of later ones.
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
			lines[i] = strings.Replace(lines[i], "Deleted a/slow 1=0", want[1], 1) // the final state may be known
		}
		if d := cmp.Diff(want, lines); d != "" {
			t.Error(d)
		}
	})
}
