package fairlead_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/admission"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/serve"
	"github.com/fairlead-io/fairlead/internal/serve/servetest"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/reconcile"
)

var descriptor = regexp.MustCompile(
	`^Desc\{fqName: "([^"]+)", help: ".*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`,
)

// exportedMetrics returns the metrics of a registry by name: their labels, and the types of those with a value.
func exportedMetrics(t *testing.T, r *prometheus.Registry) (labels, types map[string]string) {
	t.Helper()
	labels, types = map[string]string{}, map[string]string{}
	descs := make(chan *prometheus.Desc)
	go func() { // ends with the last description
		r.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		m := descriptor.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		names := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' })
		for _, pair := range strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' }) {
			name, _, _ := strings.Cut(pair, "=")
			names = append(names, name)
		}
		slices.Sort(names)
		labels[m[1]] = strings.Join(names, ", ")
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	return labels, types
}

// listedMetrics returns the metrics in docs/metrics.md.
func listedMetrics(t *testing.T) (labels, types map[string]string) {
	t.Helper()
	text, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	labels, types = map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 2 || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`fairlead_") {
			continue
		}
		if len(cells) != 6 || strings.TrimSpace(cells[4]) == "" {
			t.Errorf("want name, type, labels and meaning: %s", line)
			continue
		}
		name := strings.Trim(cells[1], " `")
		if _, twice := labels[name]; twice {
			t.Errorf("%s is listed twice", name)
		}
		names := strings.FieldsFunc(cells[3], func(r rune) bool { return strings.ContainsRune(" ,`-", r) })
		slices.Sort(names)
		types[name], labels[name] = strings.TrimSpace(cells[2]), strings.Join(names, ", ")
	}
	return labels, types
}

// gathered returns the values of a gauge by the values of its labels, which are sorted by name.
func gathered(t *testing.T, r *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetGauge().GetValue()
		}
	}
	return values
}

// TestOldest: the metrics have the age of the object that has been ready, running or failing for longest.
func TestOldest(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		for _, name := range []string{"a", "b", "c"} {
			put(t, s, name)
		}
		rt := fairlead.New(s.Config())
		calls := 0
		reconcile.New(rt, "maps",
			reconcile.Func[corev1.ConfigMap](func(ctx context.Context, _ *corev1.ConfigMap) (reconcile.Result, error) {
				if calls++; calls == 1 {
					return reconcile.Done, errors.New("no")
				}
				time.Sleep(10 * time.Second)
				return reconcile.Done, nil
			}), reconcile.Workers(1), reconcile.Deadline(time.Hour))
		begin := time.Now()
		r := run(rt)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		got := gathered(t, rt.Registry(), "fairlead_reconcile_oldest_seconds")
		for _, state := range []string{"ready", "running", "failed"} {
			if age := got[" maps "+state]; age < 8.5 || age > time.Since(begin).Seconds() {
				t.Errorf("the oldest that is %s: %v s, want 9; all: %v", state, age, got)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := map[string]float64{" maps ready": 0, " maps running": 0, " maps failed": 0}
		if diff := cmp.Diff(want, gathered(t, rt.Registry(), "fairlead_reconcile_oldest_seconds")); diff != "" {
			t.Errorf("when all is done: %s", diff)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}

// TestMetricsAreListed compares docs/metrics.md with the registries of a program of the library and of the operations
// controller. It compares names, labels, and the types of metrics with values.
func TestMetricsAreListed(t *testing.T) {
	t.Parallel()
	listed, listedTypes := listedMetrics(t)
	var exported, types map[string]string
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "x")
		rt := fairlead.New(s.Config())
		observeMaps(rt, &diary{})
		engine := flow.NewEngine(flow.EngineOptions{})
		rt.Flows(engine)
		reconcile.New(rt, "maps",
			reconcile.Func[corev1.ConfigMap](func(context.Context, *corev1.ConfigMap) (reconcile.Result, error) {
				return reconcile.Done, nil
			}))
		r := run(rt)
		synctest.Wait()
		h, err := flow.New("one", flow.Step("only", flow.Do(func(context.Context, *int) error { return nil }))).
			Start(t.Context(), engine, new(int), flow.StartOptions{})
		if err != nil {
			t.Fatal(err)
		}
		<-h.Done()
		exported, types = exportedMetrics(t, rt.Registry())
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		rt := withOperations(t, s)
		r := run(rt)
		time.Sleep(time.Second)
		more, moreTypes := exportedMetrics(t, rt.Registry())
		maps.Copy(exported, more)
		maps.Copy(types, moreTypes)
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
	hooked := fairlead.New(nil)
	admission.Serve(hooked, admission.Options{})
	elected := fairlead.New(&rest.Config{}, fairlead.WithLeaderElection("default", "operator"))
	shared := fairlead.New(&rest.Config{}, fairlead.WithShards("default", "operators"))
	recorder, err := executor.NewEvents(elected.Calls())
	if err != nil {
		t.Fatal(err)
	}
	defer recorder.Close()
	events := prometheus.NewRegistry()
	events.MustRegister(recorder)
	for _, registry := range []*prometheus.Registry{hooked.Registry(), elected.Registry(), shared.Registry(), events} {
		more, moreTypes := exportedMetrics(t, registry)
		maps.Copy(exported, more)
		maps.Copy(types, moreTypes)
	}
	for name := range exported {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") { // metrics of client_golang
			delete(exported, name)
		}
	}
	if diff := cmp.Diff(exported, listed); diff != "" {
		t.Errorf("docs/metrics.md differs from the exported metrics: %s", diff)
	}
	checked := 0
	for name, want := range types {
		if _, ok := listed[name]; !ok {
			continue
		}
		if checked++; listedTypes[name] != want {
			t.Errorf("%s is listed as %s, want %s", name, listedTypes[name], want)
		}
	}
	if checked < 40 {
		t.Errorf("only %d metrics have a value", checked)
	}
}

// withOperations returns a runtime with the operations controller, as in the program.
func withOperations(t *testing.T, s *apiserver.Server) *fairlead.Runtime {
	t.Helper()
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clientgoscheme.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	version := v1alpha1.GroupVersion
	for resource, kind := range map[string]string{"operations": v1alpha1.KindOperation, "webhooks": v1alpha1.KindWebhook} {
		s.Register(apiserver.Resource{
			Group: version.Group, Version: version.Version, Resource: resource, Kind: kind,
			Namespaced: true,
		})
	}
	rt := fairlead.New(s.Config(), fairlead.WithScheme(types))
	acquire := func(kind schema.GroupVersionKind) *cache.Store {
		h, err := rt.Cache().Acquire(kind)
		if err != nil {
			t.Fatal(err)
		}
		return h.Store
	}
	e, err := executor.New(executor.Options{
		Calls: rt.Calls(), Registerer: rt.Registry(), Operations: acquire(version.WithKind(v1alpha1.KindOperation)),
		Webhooks: acquire(version.WithKind(v1alpha1.KindWebhook)),
		Secrets:  acquire(corev1.SchemeGroupVersion.WithKind("Secret")),
	})
	if err != nil {
		t.Fatal(err)
	}
	rt.Add("executor", e.Run)
	serveOperations(t, rt, acquire(version.WithKind(v1alpha1.KindOperation)), s)
	return rt
}

// serveOperations registers the handlers of the HTTP API.
func serveOperations(t *testing.T, rt *fairlead.Runtime, known *cache.Store, s *apiserver.Server) {
	t.Helper()
	scheduler, err := operations.NewScheduler(
		operations.Options{Config: s.Config(), Calls: rt.Calls(), Namespace: "default"},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(scheduler.Close)
	reviews := httpapi.NewKubernetes(rt.Calls())
	api, err := httpapi.New(httpapi.Options{
		Scheduler: scheduler, Operations: known, Authorizer: reviews, Registerer: rt.Registry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := servetest.Certificate(t, "one", time.Time{}, time.Time{})
	servetest.Write(t, dir, cert, key)
	certificate, err := serve.LoadCertificate(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []prometheus.Collector{reviews, serve.New(api, serve.Options{}), certificate} {
		if err := rt.Registry().Register(c); err != nil {
			t.Fatal(err)
		}
	}
}
