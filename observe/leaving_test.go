package observe_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/observe"
)

// The error of Stop names the sources and observers that still run, including removed ones.
func TestStopNamesRunningParts(t *testing.T) {
	t.Parallel()
	bubbleWith(t, observe.RegistryOptions{Grace: time.Second, Degraded: true}, func(t *testing.T, h *host) {
		begun, release := make(chan struct{}, 2), make(chan struct{})
		sourceOf(h, Maps)
		var self *observe.Observer
		self = observe.On(h, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
			self.Remove()
			begun <- struct{}{}
			<-release
			return nil
		}, observe.Name("removed"))
		started := make(chan error)
		go func() { started <- h.Start(context.Background()) }()
		<-begun
		observe.SourceFunc[corev1.ConfigMap](h, "deaf", func(context.Context) ([]cache.Option, error) {
			begun <- struct{}{}
			<-release
			return nil, errors.New("at last")
		})
		observe.On(h, "deaf", ignore[corev1.ConfigMap])
		<-begun
		now, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Stop(now); err == nil || !strings.Contains(err.Error(), "removed") ||
			!strings.Contains(err.Error(), `source "deaf" (`) {
			t.Errorf("Stop: %v", err)
		}
		close(release)
		if err := <-started; err != nil && !errors.Is(err, observe.ErrStopped) {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// An observer that its policy has stopped is not waited for after its removal, and is not described.
func TestRemoveStoppedObserver(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		sourceOf(h, Maps)
		bad := observe.On(h, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
			return errors.New("broken")
		}, observe.OnFailure(observe.Stop, 0))
		observe.On(h, Maps, ignore[corev1.ConfigMap])
		h.start()
		if err := h.WaitSynced(t.Context()); err == nil {
			t.Error("a stopped observer is synced")
		}
		bad.Remove()
		if err := h.WaitSynced(t.Context()); err != nil {
			t.Errorf("after it was removed: %v", err)
		}
		if d := h.Describe(); len(d.Sources) != 1 || len(d.Sources[0].Observers) != 1 {
			t.Errorf("described: %v", d)
		}
	})
}

// A filter that ends its goroutine ends its observer, and WaitSynced reports it.
func TestFilterThatEndsTheGoroutine(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		sourceOf(h, Maps)
		observe.Filter(h, "some", Maps, func(c *corev1.ConfigMap) bool {
			runtime.Goexit()
			return true
		})
		var other story
		observe.On(h, "some", ignore[corev1.ConfigMap])
		observe.On(h, Maps, other.observe)
		h.start()
		if err := h.WaitSynced(t.Context()); err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
			t.Errorf("WaitSynced: %v", err)
		}
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, other.take()); d != "" {
			t.Error(d)
		}
	})
}
