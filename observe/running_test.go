package observe_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
)

func TestObserverRemovedFromInside(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		opts   []observe.Option
	}{{"sync", nil}, {"async", []observe.Option{observe.Async(2)}}} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				var got, other story
				var self *observe.Observer
				sourceOf(h, Maps)
				self = observe.On(h, Maps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
					if e.Key.Name == "last" {
						self.Remove()
						self.Remove() // a second call has no effect
						if ctx.Err() != nil {
							t.Error("the context of the running handler has ended")
						}
						return errors.Join(got.observe(ctx, e), errors.New("not retried any more"))
					}
					return got.observe(ctx, e)
				}, tc.opts...)
				second := observe.On(h, Maps, other.observe)
				h.start()
				for _, key := range []string{"a/first", "a/last", "a/later"} {
					h.put(key, "1")
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				if d := cmp.Diff([]string{"Synchronized", "Added a/first =1", "Added a/last =1"}, got.take()); d != "" {
					t.Error(d)
				}
				if d := cmp.Diff([]string{"Synchronized", "Added a/first =1", "Added a/last =1", "Added a/later =1"},
					other.take()); d != "" {
					t.Error(d)
				}
				if n := h.server.Log().Open(watches); n != 1 {
					t.Errorf("%d watches are open while there is an observer", n)
				}
				second.Remove()
				synctest.Wait()
				if n := h.server.Log().Open(watches); n != 0 {
					t.Errorf("%d watches are open without an observer", n)
				}
			})
		})
	}
}

func TestDeclaredWhileRunning(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		var first, early, late, again story
		sourceOf(h, Maps)
		h.start()
		if n := len(h.server.Log().Requests); n != 0 {
			t.Errorf("%d requests without an observer", n)
		}
		a := observe.On(h, Maps, first.observe)
		observe.On(h, "later", early.observe)
		synctest.Wait()
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, first.take()); d != "" {
			t.Error(d)
		}
		if !strings.Contains(h.log.String(), "no source is declared for this selector") {
			t.Errorf("an observer without a source is not reported:\n%s", h.log)
		}
		h.put("a/x", "2")
		synctest.Wait()
		b := observe.On(h, Maps, late.observe)
		synctest.Wait()
		if d := cmp.Diff([]string{"Added initial a/x =2", "Synchronized"}, late.take()); d != "" {
			t.Errorf("late: %s", d)
		}
		if n := h.server.Log().Count(watches); n != 1 {
			t.Errorf("%d watches for two observers", n)
		}
		sourceOf(h, "later", cache.Namespaces("b"))
		sourceOf(h, Maps) // a duplicate, which is refused
		synctest.Wait()
		if d := cmp.Diff([]string{"Synchronized"}, early.take()); d != "" {
			t.Errorf("an observer that was declared before its source: %s", d)
		}
		if !strings.Contains(h.log.String(), "another source is declared") {
			t.Errorf("a second source is not reported:\n%s", h.log)
		}
		a.Remove()
		b.Remove()
		synctest.Wait()
		h.put("a/x", "3")
		observe.On(h, Maps, again.observe)
		synctest.Wait()
		if d := cmp.Diff([]string{"Added initial a/x =3", "Synchronized"}, again.take()); d != "" {
			t.Errorf("after the source was closed and opened again: %s", d)
		}
	})
}

func TestObserverRemovedBeforeItsSourceIsOpen(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		gate := make(chan struct{})
		observe.SourceFunc[corev1.ConfigMap](h, Maps, func(context.Context) ([]cache.Option, error) {
			<-gate
			return nil, nil
		})
		h.start()
		o := observe.On(h, Maps, ignore[corev1.ConfigMap])
		synctest.Wait()
		o.Remove()
		close(gate)
		synctest.Wait()
		if n := len(h.server.Log().Requests); n != 0 {
			t.Errorf("%d requests", n)
		}
		if err := h.WaitSynced(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNamespacesAtRunTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		for _, ns := range []string{"a", "b", "c"} {
			h.put(ns+"/x", "1")
		}
		var got story
		o := sourceOf(h, Maps, cache.Namespaces("a", "b"))
		observe.On(h, Maps, got.observe, observe.Only(observe.Live))
		known := observe.Known[corev1.ConfigMap](h, Maps)
		step := func(want []string, namespaces ...string) {
			t.Helper()
			if err := o.SetNamespaces(namespaces...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if d := cmp.Diff(want, got.take()); d != "" {
				t.Errorf("to %q: %s", namespaces, d)
			}
		}
		step(nil, "a") // before the start
		h.start()
		if d := cmp.Diff([]string{"Synchronized"}, got.take()); d != "" {
			t.Error(d)
		}
		if n := known.Len(); n != 1 {
			t.Errorf("%d objects at the start", n)
		}
		first := h.server.Log().Count(apiserver.Match{Namespace: "a"})
		step([]string{"Added c/x =1"}, "a", "c")
		step([]string{"Deleted inferred a/x 1=1"}, "c")
		step([]string{"Added a/x =1"}, "c", "a")
		if n := h.server.Log().Count(apiserver.Match{Namespace: "c", Verb: "watch"}); n != 1 {
			t.Errorf("a remaining namespace is watched again: %d watches", n)
		}
		if n := h.server.Log().Count(apiserver.Match{Namespace: "a"}); n != 2*first {
			t.Errorf("%d requests for the namespace that was removed and added, want %d", n, 2*first)
		}
		if err := o.SetNamespaces(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := known.Len(); n != 3 {
			t.Errorf("%d objects in all namespaces", n)
		}
		h.put("b/x", "2")
		synctest.Wait()
		if lines := got.take(); len(lines) == 0 || lines[len(lines)-1] != "Modified b/x 1=2" {
			t.Errorf("all namespaces: %q", lines)
		}
		if err := o.SetNamespaces("b"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := known.Len(); n != 1 {
			t.Errorf("%d objects in one namespace", n)
		}
		if n := h.server.Log().Open(watches); n != 1 {
			t.Errorf("%d watches are open", n)
		}
	})
}
