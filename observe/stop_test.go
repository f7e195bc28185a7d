package observe_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		begun := make(chan struct{})
		sourceOf(h, "quick")
		observe.SourceFunc[corev1.ConfigMap](h, "stuck", func(ctx context.Context) ([]cache.Option, error) {
			close(begun)
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		observe.On(h, "quick", ignore[corev1.ConfigMap])
		observe.On(h, "stuck", ignore[corev1.ConfigMap])
		started := make(chan error)
		go func() { started <- h.Start(context.Background()) }()
		<-begun
		now, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Stop(now); err != nil {
			t.Error(err)
		}
		if err := <-started; !errors.Is(err, observe.ErrStopped) {
			t.Errorf("Start: %v", err)
		}
		synctest.Wait()
		if n := len(h.cache.Stores(configMaps)); n != 0 {
			t.Errorf("%d stores are left", n)
		}
		if err := h.Stop(now); err != nil {
			t.Errorf("a second stop: %v", err)
		}
	})
}

func TestContextEndsWhileStarting(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		observe.SourceFunc[corev1.ConfigMap](h, Maps, func(ctx context.Context) ([]cache.Option, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		observe.On(h, Maps, ignore[corev1.ConfigMap])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start: %v", err)
		}
	})
}

func TestStopDrains(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var got story
		begun := make(chan struct{})
		sourceOf(h, Maps)
		observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
			if e.Key.Name == "x" {
				close(begun)
				select {
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
					t.Error("the handler's context ended before the drain")
				}
			}
			return got.observe(ctx, e)
		})
		h.start()
		h.put("a/x", "1")
		h.put("a/y", "1")
		<-begun
		drain, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begin := time.Now()
		if err := h.Stop(drain); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("Stop took %v", took)
		}
		if d := cmp.Diff([]string{"Synchronized", "Added a/x =1"}, got.take()); d != "" {
			t.Errorf("want only the running handler to finish: %s", d)
		}
	})
}

func TestStopNamesRunningObservers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		forEver, cause := make(chan struct{}), make(chan error, 1)
		sourceOf(h, Maps)
		observe.On(h, Maps, func(ctx context.Context, _ observe.Event[corev1.ConfigMap]) error {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			<-forEver
			return nil
		}, observe.Name("stubborn"))
		observe.On(h, Maps, ignore[corev1.ConfigMap], observe.Name("polite"))
		h.start()
		drain, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := h.Stop(drain)
		if err == nil || !strings.Contains(err.Error(), "still running after 10s: maps (stubborn, observe/") ||
			strings.Contains(err.Error(), "polite") {
			t.Errorf("Stop: %v", err)
		}
		if err := <-cause; !errors.Is(err, observe.ErrStopped) {
			t.Errorf("the cause is %v", err)
		}
		synctest.Wait()
		if n := h.server.Log().Open(apiserver.Match{}); n != 0 {
			t.Errorf("%d requests are open: the source was not stopped", n)
		}
		close(forEver)
	})
}

func TestRetryEndsWithStop(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var calls atomic.Int32
		sourceOf(h, Maps)
		observe.On(h, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
			calls.Add(1)
			return errors.New("never works")
		}, observe.OnFailure(observe.Retry, 1000))
		h.start()
		begin := time.Now()
		if err := h.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 0 || calls.Load() != 1 {
			t.Errorf("Stop took %v and %d calls", took, calls.Load())
		}
	})
}

// Every Stop returns only when all observers have ended, also a Stop beside another one.
func TestStopTwiceAtOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		var running atomic.Bool
		sourceOf(h, Maps)
		observe.On(h, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
			running.Store(true)
			time.Sleep(5 * time.Second)
			running.Store(false)
			return nil
		})
		h.start()
		first := make(chan error)
		go func() { first <- h.Stop(t.Context()) }()
		synctest.Wait()
		if err := h.Stop(t.Context()); err != nil || running.Load() {
			t.Errorf("the second stop has returned %v, the observer is running: %v", err, running.Load())
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// The second Stop has its own deadline. It does not wait longer than its drain and grace, whatever the first one
// allows.
func TestSecondStopNamesRunningObservers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		forEver := make(chan struct{})
		sourceOf(h, Maps)
		observe.On(h, Maps, func(context.Context, observe.Event[corev1.ConfigMap]) error {
			<-forEver
			return nil
		}, observe.Name("stubborn"))
		h.start()
		first := make(chan error)
		go func() { first <- h.Stop(t.Context()) }() // drains for the whole test
		synctest.Wait()
		drain, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		if err := h.Stop(drain); err == nil || !strings.Contains(err.Error(), "stubborn") ||
			time.Since(begin) != 11*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if err := <-first; err == nil || !strings.Contains(err.Error(), "stubborn") {
			t.Errorf("the first stop: %v", err)
		}
		close(forEver)
	})
}

// A failed source is reported also if the start ends for another reason.
func TestContextEndsWhileStartingAfterAFailure(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		broken := errors.New("broken")
		observe.SourceFunc[corev1.ConfigMap](h, Maps, func(context.Context) ([]cache.Option, error) { return nil, broken })
		observe.SourceFunc[corev1.ConfigMap](h, "slow", func(ctx context.Context) ([]cache.Option, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		observe.On(h, Maps, ignore[corev1.ConfigMap])
		observe.On(h, "slow", ignore[corev1.ConfigMap])
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := h.Start(ctx); !errors.Is(err, broken) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Start: %v, want only the failure of the source", err)
		}
	})
}
