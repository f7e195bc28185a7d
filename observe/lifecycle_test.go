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
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/observe"
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
		observe.SourceFunc[corev1.Secret](h, "secrets", func(context.Context) ([]cache.Option, error) {
			t.Error("the function of a source without observers is called")
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
			t.Errorf("reported although the source has an observer:\n%s", h.log)
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
		{"a set of one member equals it", observe.All(a), a, true},
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

// All mistakes are reported together, each with its place, before any request is sent.
func TestMistakesAreReportedTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		observe.Source[corev1.ConfigMap](h, Maps)
		observe.Source[corev1.ConfigMap](h, Maps)
		observe.Source[corev1.ConfigMap](h, "")
		observe.Source[corev1.ConfigMap](h, "labels", cache.Labels("a in ("))
		observe.Source[corev1.ConfigMap](h, "fields", cache.Fields("a=b=c"))
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
		// These are valid.
		observe.On(h, Maps, ignore[metav1.PartialObjectMetadata])
		observe.OnObject(h, Maps, func(context.Context, observe.ObjectEvent) error { return nil })

		err := h.Start(t.Context())
		if err == nil {
			t.Fatal("started")
		}
		for _, want := range []string{
			`cannot declare source "maps": another source is declared for this selector: observe/lifecycle_test.go:`,
			`cannot declare source "": the selector is empty`,
			`cannot declare source "labels": malformed selector`,
			`cannot declare source "fields": malformed selector`,
			`cannot declare source "nil function": the function is nil`,
			`cannot declare source "unknown": the type is not registered in the scheme: observe_test.unknown`,
			`cannot declare source "circle": the source is derived from itself`,
			`cannot declare source "round": the source is derived from itself`,
			`cannot declare source "joined": observer and source differ in type: it takes v1.Secret`,
			`cannot declare source "joined": no source is declared`,
			`cannot declare observer "nobody": no source is declared for this selector`,
			`cannot declare observer "maps + more": no source is declared for this selector; the source at observe/`,
			`cannot declare observer "maps": observer and source differ in type: it takes v1.Pod, and the source at observe/`,
			`cannot declare observer "maps": the function is nil`,
			`cannot declare observer "maps": observer and source differ in type: it takes v1.Secret`,
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error lacks %q:\n%v", want, err)
			}
		}
		for _, is := range []error{observe.ErrDuplicateSource, observe.ErrMalformedSelector, observe.ErrNoSource} {
			if !errors.Is(err, is) {
				t.Errorf("the error does not match %q:\n%v", is, err)
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
		synctest.Wait()
		if n := len(h.server.Log().Requests); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

type unknown struct{ corev1.ConfigMap }

// The third of five sources fails to start. The started ones are stopped, and the error names the failed one.
func TestThirdOfFiveFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		fail   map[int]func() ([]cache.Option, error)
		want   []string
	}{
		{
			"an error",
			map[int]func() ([]cache.Option, error){
				3: func() ([]cache.Option, error) { return nil, errors.New("no configuration") },
			},
			[]string{`cannot start source "3" (observe/lifecycle_test.go:`, "no configuration"},
		},
		{
			"a panic",
			map[int]func() ([]cache.Option, error){3: func() ([]cache.Option, error) { panic("boom") }},
			[]string{`cannot start source "3"`, "boom"},
		},
		{"invalid options", map[int]func() ([]cache.Option, error){3: func() ([]cache.Option, error) {
			return []cache.Option{cache.Labels("in in in")}, nil
		}}, []string{`cannot start source "3"`, "malformed selector"}},
		{"two errors, in the order of declaration", map[int]func() ([]cache.Option, error){
			3: func() ([]cache.Option, error) {
				time.Sleep(time.Second)
				return nil, errors.New("the slow one")
			},
			5: func() ([]cache.Option, error) { return nil, errors.New("the quick one") },
		}, []string{"the slow one", "the quick one"}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, h *host) {
				var called [6]atomic.Int32
				for i := 1; i <= 5; i++ {
					s := observe.Selector(fmt.Sprint(i))
					observe.SourceFunc[corev1.ConfigMap](h, s, func(context.Context) ([]cache.Option, error) {
						called[i].Add(1)
						if fail := tc.fail[i]; fail != nil {
							return fail()
						}
						return []cache.Option{cache.Namespaces(fmt.Sprint("ns", i))}, nil
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
						t.Fatalf("%q is missing, or not in order: %v", want, err)
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

// With Degraded the other sources run, and the failed one is retried until it works.
func TestDegradedStart(t *testing.T) {
	t.Parallel()
	bubbleWith(t, observe.RegistryOptions{Degraded: true}, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		var tries atomic.Int32
		var got, other story
		sourceOf(h, "good", cache.Namespaces("a"))
		observe.SourceFunc[corev1.ConfigMap](h, "bad", func(context.Context) ([]cache.Option, error) {
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
		if err := h.WaitSynced(soon); err == nil || !strings.Contains(err.Error(), "bad (waiting, observe/") ||
			!strings.Contains(err.Error(), "not installed yet") {
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

func TestWaitSyncedNamesMissingSources(t *testing.T) {
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
			t.Errorf("a synced source is named: %v", err)
		}
	})
}

// All sources start concurrently: none waits for another one.
func TestSourcesStartTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		const sources = 20
		var all sync.WaitGroup
		all.Add(sources)
		var asked [sources]atomic.Int32
		for i := range sources {
			s := observe.Selector(fmt.Sprint(i))
			observe.SourceFunc[corev1.ConfigMap](h, s, func(context.Context) ([]cache.Option, error) {
				asked[i].Add(1)
				all.Done()
				all.Wait()
				return []cache.Option{cache.Namespaces(fmt.Sprint("ns", i))}, nil
			})
			observe.On(h, s, ignore[corev1.ConfigMap])
			observe.On(h, s, ignore[metav1.PartialObjectMetadata])
		}
		h.start()
		if err := h.WaitSynced(t.Context()); err != nil {
			t.Error(err)
		}
		for i := range asked {
			if n := asked[i].Load(); n != 1 {
				t.Errorf("the function of source %d was called %d times", i, n)
			}
		}
	})
}

// The function of a source is called once, even if the source is closed and opened again.
func TestSourceFunctionIsCalledOnce(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		h.put("b/x", "1")
		var asked atomic.Int32
		observe.SourceFunc[corev1.ConfigMap](h, Maps, func(context.Context) ([]cache.Option, error) {
			asked.Add(1)
			return []cache.Option{cache.Namespaces("a")}, nil
		})
		h.start()
		if n := asked.Load(); n != 0 {
			t.Errorf("the function was called %d times without an observer", n)
		}
		for range 3 {
			var got story
			o := observe.On(h, Maps, got.observe)
			synctest.Wait()
			if d := cmp.Diff([]string{"Added initial a/x =1", "Synchronized"}, got.take()); d != "" {
				t.Error(d)
			}
			o.Remove()
			synctest.Wait()
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("the function was called %d times", n)
		}
	})
}
