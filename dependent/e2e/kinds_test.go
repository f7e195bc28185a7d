package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/internal/testlimit"
	"github.com/fairlead-io/fairlead/reconcile"
)

// counter counts the requests of a program, except watches and lists. A get by which a cache waits for a write is not
// counted either.
type counter struct {
	mu  sync.Mutex
	all []string
}

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper { return &counting{next, c} }

func (c *counter) note(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, r.Method+" "+r.URL.Path)
}

func (c *counter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

// counting is the transport of a counter.
type counting struct {
	next    http.RoundTripper
	counter *counter
}

// RoundTrip counts a request, unless the API server is too busy and the request is repeated.
func (t *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.next.RoundTrip(r)
	q := r.URL.Query()
	if q.Get("watch") == "" && !q.Has("limit") && !q.Has("resourceVersionMatch") && !q.Has("fieldSelector") &&
		strings.Count(r.URL.Path, "/") > 3 && (err != nil || answer.StatusCode != http.StatusTooManyRequests) {
		t.counter.note(r)
	}
	return answer, err
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (t *counting) WrappedRoundTripper() http.RoundTripper { return t.next }

// TestEveryKind has one child of each kind that Kubernetes persists. A hundred rounds over all of them send no request.
// Then other writers change each child, in fields that the operator does not own and in fields that it owns.
func TestEveryKind(t *testing.T) {
	cp := clustertest.Start(t, cluster.Options{
		APIServerFlags: []string{
			"--runtime-config=api/all=true",
			"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		},
		FeatureGates: map[string]bool{"AllAlpha": true, "AllBeta": true},
	})
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	user := fairlead.New(cp.Config()).Client()
	defer user.Close()
	primary := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "primary", Labels: map[string]string{"primary": "yes"},
	}}
	if err := user.Create(ctx, primary); err != nil {
		t.Fatal(err)
	}

	var count counter
	cfg := rest.CopyConfig(cp.Config())
	cfg.Wrap(count.wrap)
	cfg.QPS, cfg.Burst = -1, -1
	rt := fairlead.New(cfg)
	type report struct {
		ready  bool
		failed []string
	}
	reports := make(chan report, 1000)
	g := dependent.For[corev1.ConfigMap]().Status(func(_ *corev1.ConfigMap, r *dependent.Report) {
		now := report{ready: r.Ready()}
		for _, n := range r.Nodes() {
			if n.State != dependent.StateReady {
				now.failed = append(now.failed, fmt.Sprintf("%s: %s %s", n.Name, n.State, n.Message))
			}
		}
		reports <- now
	})
	children := map[string]*unstructured.Unstructured{}
	for gvr, stub := range stubs(t) {
		gvk, err := user.Mapper().KindFor(gvr)
		if err != nil || gvk.Version != gvr.Version {
			continue // of an older or a newer version, or not served
		}
		name := strings.ToLower(gvk.Kind + "-" + gvk.Version + "-" + strings.ReplaceAll(gvk.Group, ".", "-"))
		name = strings.TrimSuffix(name[:min(len(name), 63)], "-")
		stub.SetGroupVersionKind(gvk)
		if stub.GetNamespace() == "" && namespaced(t, user.Mapper(), gvk) {
			stub.SetNamespace("default")
		}
		children[name] = stub
		dependent.Add(g, name, func(context.Context, *corev1.ConfigMap) (*unstructured.Unstructured, error) {
			return stub.DeepCopy(), nil
		}, dependent.Kind(gvk), dependent.Elsewhere(), dependent.Adopt())
	}
	c := g.Controller(rt, "everything", reconcile.Primary(reconcile.From(cache.Labels("primary=yes"))))
	done := make(chan error, 1)
	run, stop := context.WithCancel(ctx)
	go func() { done <- rt.Run(run) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	next := func() report {
		select {
		case r := <-reports:
			return r
		case <-ctx.Done():
			t.Fatalf("no report: %v", c.Failures())
		}
		return report{}
	}
	var last report
	for last = next(); !last.ready; last = next() {
		t.Log(strings.Join(last.failed, "\n"))
	}
	t.Logf("%d kinds, %d requests to make their children", len(children), len(count.take()))
	if len(children) < 60 {
		t.Errorf("only %d kinds are served", len(children))
	}
	again := func() {
		t.Helper()
		c.Trigger(client.KeyOf(primary), "test")
		next()
	}
	for range 100 {
		again()
	}
	nothing := func(reason string) {
		t.Helper()
		if all := count.take(); len(all) > 0 {
			slices.Sort(all)
			t.Errorf("%s: %d requests: %v", reason, len(all), slices.Compact(all))
		}
	}
	nothing("a hundred rounds without changes")

	// Another writer's annotation needs no correction.
	annotate := func(name, value string) {
		for node, child := range children {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
			it := named(child)
			if err := user.Patch(ctx, it, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Errorf("cannot change %s: %v", node, err)
			}
		}
	}
	shows := func(name, value string) {
		for _, child := range children {
			for it := named(child); it.GetAnnotations()[name] != value; {
				if err := rt.Client().Get(ctx, client.KeyOf(child), it); err != nil {
					t.Fatal(err)
				}
				if ctx.Err() != nil {
					t.Fatalf("%s has not become %s", name, value)
				}
			}
		}
	}
	annotate("theirs", "1")
	shows("theirs", "1")
	again()
	nothing("foreign fields")

	// Now change an owned annotation of each of them.
	annotate(dependent.AnnotationNode, "theirs")
	for node, child := range children {
		want := "everything/" + node
		for it := named(child); it.GetAnnotations()[dependent.AnnotationNode] != want; {
			if err := user.Get(ctx, client.KeyOf(child), it); err != nil {
				t.Fatalf("%s was not restored: %v", node, err)
			}
		}
	}
	for r := next(); !r.ready; r = next() {
	}
	again()
	all := count.take()
	slices.Sort(all)
	if n := len(slices.Compact(slices.Clone(all))); len(all) != n || n != len(children) {
		for node, child := range children {
			if !slices.ContainsFunc(all, func(r string) bool { return strings.HasSuffix(r, "/"+child.GetName()) }) {
				t.Errorf("%s was restored without a request", node)
			}
		}
		t.Errorf("%d requests, of which %d differ, for %d children: %v", len(all), n, len(children), all)
	}
}

func named(child *unstructured.Unstructured) *unstructured.Unstructured {
	it := &unstructured.Unstructured{}
	it.SetGroupVersionKind(child.GroupVersionKind())
	it.SetNamespace(child.GetNamespace())
	it.SetName(child.GetName())
	return it
}

func namespaced(t *testing.T, mapper meta.RESTMapper, gvk schema.GroupVersionKind) bool {
	m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		t.Fatal(err)
	}
	return m.Scope.Name() == meta.RESTScopeNameNamespace
}
