package observe_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/source"
)

var (
	lists   = apiserver.Match{Verb: "list"}
	watches = apiserver.Match{Verb: "watch"}
)

func ignore[T any](context.Context, observe.Event[T]) error { return nil }

func TestSourceWithoutObserversIsNeverListed(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		sourceOf(h, Maps)
		observe.SourceFunc[corev1.Secret](h, "secrets", func(context.Context) ([]source.Option, error) {
			t.Error("the function of a source that nobody observes is called")
			return nil, nil
		})
		observe.Source[corev1.Pod](h, "pods")
		observe.Filter(h, "some pods", "pods", func(*corev1.Pod) bool { return true })
		observe.Map(h, "mapped pods", "some pods", func(p *corev1.Pod) *corev1.Pod { return p })
		observe.On(h, Maps, ignore[corev1.ConfigMap])
		h.start()
		time.Sleep(time.Hour)
		for _, r := range h.server.Log().Requests {
			if r.Resource != "configmaps" {
				t.Errorf("%s of %s", r.Verb, r.Resource)
			}
		}
		for _, s := range []string{"secrets", "pods", "some pods", "mapped pods"} {
			if !strings.Contains(h.log.String(), fmt.Sprintf("selector=%s", quote(s))) {
				t.Errorf("not reported: %s\n%s", s, h.log)
			}
		}
		if strings.Contains(h.log.String(), "selector=maps ") {
			t.Errorf("reported though it is observed:\n%s", h.log)
		}
	})
}

func quote(s string) string {
	if strings.Contains(s, " ") {
		return fmt.Sprintf("%q", s)
	}
	return s
}

func TestSelectorsMatchAsSets(t *testing.T) {
	t.Parallel()
	a, b, c := observe.Selector("a"), observe.Selector("b"), observe.Selector("c")
	for _, tc := range []struct {
		reason           string
		source, observer observe.Selector
		match            bool
	}{
		{"the same", a, a, true},
		{"another order", observe.All(a, b), observe.All(b, a), true},
		{"a member twice", observe.All(a, b, a), observe.All(a, b), true},
		{"a set of sets", observe.All(a, observe.All(b, c)), observe.All(c, b, a), true},
		{"a set of one is that one", observe.All(a), a, true},
		{"a part", observe.All(a, b), a, false},
		{"more", a, observe.All(a, b), false},
		{"another", a, b, false},
		{"overlapping", observe.All(a, b), observe.All(b, c), false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				sourceOf(h, tc.source)
				observe.On(h, tc.observer, ignore[corev1.ConfigMap])
				err := h.Check()
				if errors.Is(err, observe.ErrNoSource) == tc.match {
					t.Errorf("match is %v, but: %v", tc.match, err)
				}
			})
		})
	}
}

// All mistakes are reported together, each with its place, before any request is made.
func TestMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		observe.Source[corev1.ConfigMap](h, Maps)
		observe.Source[corev1.ConfigMap](h, Maps)
		observe.Source[corev1.ConfigMap](h, "")
		observe.Source[corev1.ConfigMap](h, "labels", source.Labels("a in ("))
		observe.Source[corev1.ConfigMap](h, "fields", source.Fields("a=b=c"))
		observe.SourceFunc[corev1.ConfigMap](h, "nil function", nil)
		observe.Source[unknown](h, "unknown")
		observe.Filter(h, "circle", "round", func(*corev1.ConfigMap) bool { return true })
		observe.Map(h, "round", "circle", func(c *corev1.ConfigMap) *corev1.ConfigMap { return c })
		observe.Join[corev1.Secret](h, "joined", Maps, "nothing")
		observe.On(h, "nobody", ignore[corev1.ConfigMap])
		observe.On(h, observe.All(Maps, "more"), ignore[corev1.ConfigMap])
		observe.On(h, Maps, ignore[corev1.Pod])
		observe.On[corev1.ConfigMap](h, Maps, nil)
		observe.Known[corev1.Secret](h, Maps)
		// These are right.
		observe.On(h, Maps, ignore[metav1.PartialObjectMetadata])
		observe.OnObject(h, Maps, func(context.Context, observe.ObjectEvent) error { return nil })

		err := h.Start(t.Context())
		if err == nil {
			t.Fatal("started")
		}
		for _, want := range []struct {
			text string
			is   error
		}{
			{`cannot declare source "maps": another source is declared for this selector: observe/lifecycle_test.go:`, observe.ErrDuplicateSource},
			{`cannot declare source "": the selector is empty`, observe.ErrEmptySelector},
			{`cannot declare source "labels": malformed selector`, observe.ErrMalformedSelector},
			{`cannot declare source "fields": malformed selector`, observe.ErrMalformedSelector},
			{`cannot declare source "nil function": the function is nil`, observe.ErrNilFunction},
			{`cannot declare source "unknown": the type is not registered in the scheme: observe_test.unknown`, observe.ErrUnknownType},
			{`cannot declare source "circle": the source is derived from itself`, observe.ErrCycle},
			{`cannot declare source "round": the source is derived from itself`, observe.ErrCycle},
			{`cannot declare source "joined": observer and source differ in type: it takes v1.Secret`, observe.ErrTypeMismatch},
			{`cannot declare source "joined": no source is declared`, observe.ErrNoSource},
			{`cannot declare observer "nobody": no source is declared for this selector`, observe.ErrNoSource},
			{`cannot declare observer "maps + more": no source is declared for this selector; the source at observe/`, observe.ErrNoSource},
			{`cannot declare observer "maps": observer and source differ in type: it takes v1.Pod, and the source at observe/`, observe.ErrTypeMismatch},
			{`cannot declare observer "maps": the function is nil`, observe.ErrNilFunction},
			{`cannot declare observer "maps": observer and source differ in type: it takes v1.Secret`, observe.ErrTypeMismatch},
		} {
			if !strings.Contains(err.Error(), want.text) || !errors.Is(err, want.is) {
				t.Errorf("the error does not say %q:\n%v", want.text, err)
			}
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != 15 {
			t.Errorf("%d mistakes, want 15:\n%v", len(lines), err)
		}
		for _, line := range lines {
			if !strings.Contains(line, "observe/lifecycle_test.go:") {
				t.Errorf("no place: %s", line)
			}
		}
		var first *observe.DeclarationError
		if !errors.As(err, &first) || first.What != "source" || first.Selector != Maps {
			t.Errorf("errors.As: %+v", first)
		}
		synctest.Wait()
		if n := len(h.server.Log().Requests); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

type unknown struct{ corev1.ConfigMap }

// The third of five sources fails to start: what was started is stopped, and the error says which.
func TestThirdOfFiveFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		fail   map[int]func() ([]source.Option, error)
		want   []string
	}{
		{
			"an error",
			map[int]func() ([]source.Option, error){3: func() ([]source.Option, error) { return nil, errors.New("no configuration") }},
			[]string{`cannot start source "3" (observe/lifecycle_test.go:`, "no configuration"},
		},
		{
			"a panic",
			map[int]func() ([]source.Option, error){3: func() ([]source.Option, error) { panic("boom") }},
			[]string{`cannot start source "3"`, "boom"},
		},
		{"options that are wrong", map[int]func() ([]source.Option, error){3: func() ([]source.Option, error) {
			return []source.Option{source.Labels("in in in")}, nil
		}}, []string{`cannot start source "3"`, "malformed selector"}},
		{"two, in the order of declaration", map[int]func() ([]source.Option, error){
			3: func() ([]source.Option, error) {
				time.Sleep(time.Second)
				return nil, errors.New("the slow one")
			},
			5: func() ([]source.Option, error) { return nil, errors.New("the quick one") },
		}, []string{"the slow one", "the quick one"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				var called [6]atomic.Int32
				for i := 1; i <= 5; i++ {
					s := observe.Selector(fmt.Sprint(i))
					observe.SourceFunc[corev1.ConfigMap](h, s, func(context.Context) ([]source.Option, error) {
						called[i].Add(1)
						if fail := tc.fail[i]; fail != nil {
							return fail()
						}
						return []source.Option{source.Namespaces(fmt.Sprint("ns", i))}, nil
					})
					observe.On(h, s, ignore[corev1.ConfigMap])
				}
				err := h.Start(t.Context())
				if err == nil {
					t.Fatal("started")
				}
				at := 0
				for _, want := range tc.want {
					i := strings.Index(err.Error()[at:], want)
					if i < 0 {
						t.Fatalf("%q is not there, or not in order: %v", want, err)
					}
					at += i
				}
				for i := 1; i <= 5; i++ {
					if n := called[i].Load(); n != 1 {
						t.Errorf("source %d was called %d times", i, n)
					}
				}
				synctest.Wait()
				if n := h.server.Log().Open(apiserver.Match{}); n != 0 {
					t.Errorf("%d requests are open after the rollback", n)
				}
				if n := len(h.cache.Stores(configMaps)); n != 0 {
					t.Errorf("%d stores are left", n)
				}
				if err := h.Start(t.Context()); !errors.Is(err, observe.ErrStopped) {
					t.Errorf("a second start: %v", err)
				}
			})
		})
	}
}

// With Degraded the others run, and the failed one is tried again until it works.
func TestDegradedStart(t *testing.T) {
	t.Parallel()
	bubbleWith(t, observe.RegistryOptions{Degraded: true}, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		var tries atomic.Int32
		var got, other story
		sourceOf(h, "good", source.Namespaces("a"))
		observe.SourceFunc[corev1.ConfigMap](h, "bad", func(context.Context) ([]source.Option, error) {
			if tries.Add(1) < 4 {
				return nil, errors.New("not installed yet")
			}
			return nil, nil
		})
		observe.On(h, "good", got.observe)
		observe.On(h, "bad", other.observe, observe.Name("waiting"))
		h.start()
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, got.take()); d != "" {
			t.Error(d)
		}
		if d := h.Describe().String(); !strings.Contains(d, "failed: cannot start source \"bad\"") {
			t.Errorf("not described:\n%s", d)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := h.WaitSynced(soon); err == nil || !strings.Contains(err.Error(), "bad (waiting, observe/") || !strings.Contains(err.Error(), "not installed yet") {
			t.Errorf("WaitSynced: %v", err)
		}
		if err := h.WaitSynced(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, other.take()); d != "" {
			t.Error(d)
		}
		if n := tries.Load(); n != 4 {
			t.Errorf("%d tries", n)
		}
	})
}

func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		begun := make(chan struct{})
		sourceOf(h, "quick")
		observe.SourceFunc[corev1.ConfigMap](h, "stuck", func(ctx context.Context) ([]source.Option, error) {
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
		observe.SourceFunc[corev1.ConfigMap](h, Maps, func(ctx context.Context) ([]source.Option, error) {
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
						self.Remove() // again is harmless
						if ctx.Err() != nil {
							t.Error("what is being handled is not finished")
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
				if d := cmp.Diff([]string{"Synchronized", "Added a/first =1", "Added a/last =1", "Added a/later =1"}, other.take()); d != "" {
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
		sourceOf(h, "later", source.Namespaces("b"))
		sourceOf(h, Maps) // refused
		synctest.Wait()
		if d := cmp.Diff([]string{"Synchronized"}, early.take()); d != "" {
			t.Errorf("an observer that was there before its source: %s", d)
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
		observe.SourceFunc[corev1.ConfigMap](h, Maps, func(context.Context) ([]source.Option, error) {
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

func TestWaitSyncedNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.server.On(apiserver.Match{Resource: "secrets"}, apiserver.Answer(apiserver.Failure(403)))
		observe.Source[corev1.Secret](h, "secrets")
		sourceOf(h, Maps)
		observe.On(h, "secrets", ignore[corev1.Secret], observe.Name("certificates"))
		observe.On(h, Maps, ignore[corev1.ConfigMap])
		h.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := h.WaitSynced(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("WaitSynced: %v", err)
		}
		for _, want := range []string{"secrets (certificates, observe/lifecycle_test.go:", "Degraded: Forbidden"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing: %v", want, err)
			}
		}
		if strings.Contains(err.Error(), "maps") {
			t.Errorf("what is synced is named: %v", err)
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
			t.Errorf("it took %v", took)
		}
		if d := cmp.Diff([]string{"Synchronized", "Added a/x =1"}, got.take()); d != "" {
			t.Errorf("what was being handled is finished, and nothing more: %s", d)
		}
	})
}

func TestStopNamesWhoDoesNot(t *testing.T) {
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
		if err == nil || !strings.Contains(err.Error(), "still running after 10s: maps (stubborn, observe/") || strings.Contains(err.Error(), "polite") {
			t.Errorf("Stop: %v", err)
		}
		if err := <-cause; !errors.Is(err, observe.ErrStopped) {
			t.Errorf("the cause is %v", err)
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
			t.Errorf("it took %v and %d calls", took, calls.Load())
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
		o := sourceOf(h, Maps, source.Namespaces("a", "b"))
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
			t.Errorf("a namespace that stays is watched anew: %d watches", n)
		}
		if n := h.server.Log().Count(apiserver.Match{Namespace: "a"}); n != 2*first {
			t.Errorf("%d requests for the namespace that went and came back, want %d", n, 2*first)
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
