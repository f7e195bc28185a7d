package observe_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/inspect"
	"github.com/fairlead-io/fairlead/observe"
)

// One source with 100 observers has one watch and one list, and decodes each event once for each type.
func TestHundredObservers(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		const name = "of a hundred"
		if _, err := h.server.Put(widget(name, "0")); err != nil {
			t.Fatal(err)
		}
		before := decoded(name)
		var calls atomic.Int64
		observe.Source[Widget](h, "widgets")
		for i := range 100 {
			var opts []observe.Option
			if i%2 == 0 {
				opts = append(opts, observe.Async(2))
			}
			observe.On(h, "widgets", func(_ context.Context, e observe.Event[Widget]) error {
				if e.Object() != nil {
					calls.Add(1)
				}
				return nil
			}, opts...)
		}
		h.start()
		for i := range 9 {
			if _, err := h.server.Put(widget(name, string(rune('1'+i)))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := calls.Load(); n != 1000 {
			t.Errorf("%d calls for 10 events and 100 observers", n)
		}
		if n := decoded(name) - before; n != 10 {
			t.Errorf("decoded %d times for 10 events", n)
		}
		if n := h.server.Log().Count(watches); n != 1 {
			t.Errorf("%d watches", n)
		}
		if n := h.server.Log().Count(lists); n != 0 {
			t.Errorf("%d lists besides that of the watch", n)
		}
	})
}

// The mask is checked before an object is decoded.
func TestMaskedEventsAreNotDecoded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		const name = "unwanted"
		if _, err := h.server.Put(widget(name, "red")); err != nil {
			t.Fatal(err)
		}
		observe.Source[Widget](h, "widgets")
		observe.On(h, "widgets", ignore[Widget], observe.Only(observe.OnDeleted))
		h.start()
		if n := decoded(name); n != 0 {
			t.Errorf("decoded %d times", n)
		}
	})
}

var lineNumber = regexp.MustCompile(`_test\.go:\d+`)

func TestDescribe(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		h.put("a/x", "1")
		h.server.On(apiserver.Match{Namespace: "b"}, apiserver.Answer(apiserver.Failure(403)))
		web := observe.Selector("web")
		observe.Source[corev1.ConfigMap](h, observe.All(web, Maps), cache.Namespaces("a", "b"))
		observe.Filter(h, "filtered", observe.All(Maps, web), func(*corev1.ConfigMap) bool { return true })
		observe.Source[corev1.Pod](h, "pods")
		observe.On(h, observe.All(Maps, web), ignore[corev1.ConfigMap], observe.Name("prints"))
		observe.On(h, "filtered", ignore[metav1.PartialObjectMetadata], observe.Async(0),
			observe.Only(observe.OnAdded|observe.Initial))
		if d := h.Describe().String(); !strings.Contains(d, "not started") {
			t.Errorf("before the start:\n%s", d)
		}
		h.start()
		observe.On(h, "nobody", ignore[corev1.ConfigMap], observe.OnFailure(observe.Stop, 0))
		d := h.Describe()
		text := lineNumber.ReplaceAllString(d.String(), "_test.go:0")
		text = regexp.MustCompile(` for \d.*?: `).ReplaceAllString(text, " for 0s: ")
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for i := range lines {
			lines[i] = regexp.MustCompile(` {2,}`).ReplaceAllString(strings.TrimSpace(lines[i]), "  ")
		}
		want := []string{
			"maps + web  v1.ConfigMap  observe/describe_test.go:0  1 objects, a Watching, b Degraded Forbidden for 0s: " +
				"forbidden",
			"<- prints  v1.ConfigMap  observe/describe_test.go:0  All, sync",
			"filtered  observe/describe_test.go:0  from maps + web",
			"<- observe/describe_test.go:0  v1.PartialObjectMetadata  observe/describe_test.go:0  Added|Initial, async, 16 at " +
				"once",
			"pods  v1.Pod  observe/describe_test.go:0  not listed: it has no observer",
			"nobody  -  -  no source",
			"<- observe/describe_test.go:0  v1.ConfigMap  observe/describe_test.go:0  All, sync, not synced",
		}
		if d := cmp.Diff(want, lines); d != "" {
			t.Error(d)
		}
		raw, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		var back inspect.Sources
		if err := json.Unmarshal(raw, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(d, back); d != "" {
			t.Errorf("JSON: %s", d)
		}
		for _, want := range []string{
			`"selector":["maps","web"]`, `"namespace":"b","phase":"Degraded","reason":"Forbidden"`,
			`"failure":"Stop"`,
		} {
			if !strings.Contains(string(raw), want) {
				t.Errorf("JSON lacks %s:\n%s", want, raw)
			}
		}
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, h *host) {
		sourceOf(h, Maps, cache.Namespaces("a"))
		sourceOf(h, "unobserved")
		for range 2 {
			observe.On(h, Maps, func(_ context.Context, e observe.Event[corev1.ConfigMap]) error {
				if e.Key.Name == "bad" {
					return errors.New("bad")
				}
				return nil
			}, observe.Name("two of a name"), observe.OnFailure(observe.Skip, 0))
		}
		h.start()
		h.put("a/good", "1")
		h.put("a/bad", "1")
		synctest.Wait()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(h.Collector())
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		want := map[string]float64{
			"fairlead_observer_events_total two of a name maps":       4,
			"fairlead_observer_failures_total two of a name maps":     2,
			"fairlead_observer_retries_total two of a name maps":      0,
			"fairlead_observer_busy_seconds_total two of a name maps": 0,
			"fairlead_observer_lag two of a name maps":                0,
			"fairlead_source_objects maps":                            2,
			"fairlead_source_objects unobserved":                      0,
			"fairlead_source_running maps":                            1,
			"fairlead_source_running unobserved":                      0,
			"fairlead_source_watching a maps":                         1,
			"fairlead_source_staleness_seconds a maps":                0,
			"fairlead_source_lists_total a maps":                      1,
			"fairlead_source_list_errors_total a maps":                0,
			"fairlead_source_changes_total a maps":                    2,
			"fairlead_source_quarantined_total a maps":                0,
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}
