package fairlead_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/why"
)

var (
	widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	widgets    = apiserver.Resource{
		Group: "example.com", Version: "v1", Resource: "widgets", Kind: "Widget", Namespaced: true,
	}
)

// optionalBench is a program whose gateways have a ConfigMap, a widget and, if the widget is ready, a Secret.
type optionalBench struct {
	*running
	t        *testing.T
	server   *apiserver.Server
	statuses []dependent.NodeStatus // of the last report
}

func withOptional(t *testing.T, opts []dependent.Option, test func(b *optionalBench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := apiserver.New(apiserver.Options{Pipe: true, Resources: testbed.Resources()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Put(testbed.New("a", "web")); err != nil {
			t.Fatal(err)
		}
		b := &optionalBench{t: t, server: s}
		rt := fairlead.New(s.Config(), fairlead.WithScheme(testbed.Scheme()))
		g := dependent.For[testbed.Gateway]()
		dependent.Add(g, "page", func(context.Context, *testbed.Gateway) (*corev1.ConfigMap, error) {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "page"}}, nil
		})
		widget := dependent.Add(g, "widget", func(context.Context, *testbed.Gateway) (*unstructured.Unstructured, error) {
			u := &unstructured.Unstructured{}
			u.SetName("widget")
			return u, nil
		}, append(opts, dependent.Kind(widgetKind), dependent.Optional())...)
		dependent.Add(g, "secret", func(context.Context, *testbed.Gateway) (*corev1.Secret, error) {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "secret"}}, nil
		}, dependent.After(widget), dependent.If(func(g *testbed.Gateway) bool { return g.Spec.Size > 1 }))
		g.Status(func(g *testbed.Gateway, r *dependent.Report) {
			b.statuses = r.Nodes()
			r.Into(&g.Status.Conditions)
		}).Controller(rt, "gateways", reconcile.MaxInterval(-1))
		b.running = run(rt)
		b.settle()
		test(b)
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

func (b *optionalBench) settle() {
	time.Sleep(time.Minute)
	synctest.Wait()
}

// has reports whether the server has an object.
func (b *optionalBench) has(gvr schema.GroupVersionResource, name string) bool {
	b.t.Helper()
	_, err := b.server.Object(gvr, "a", name)
	if err != nil && !apierrors.IsNotFound(err) {
		b.t.Fatal(err)
	}
	return err == nil
}

// resize changes the spec of the gateway.
func (b *optionalBench) resize(size int) {
	b.t.Helper()
	testbed.Change(b.t, b.server, testbed.Gateways, reconcile.Key{Namespace: "a", Name: "web"},
		func(u *unstructured.Unstructured) {
			if err := unstructured.SetNestedField(u.Object, int64(size), "spec", "size"); err != nil {
				b.t.Fatal(err)
			}
		})
	b.settle()
}

func (b *optionalBench) wantStates(reason string, want ...dependent.State) {
	b.t.Helper()
	var got []dependent.State
	for _, s := range b.statuses {
		got = append(got, s.State)
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: %q, want %q: %+v", reason, got, want, b.statuses)
	}
}

func (b *optionalBench) condition(typ string) metav1.Condition {
	for _, c := range testbed.Stored(b.server, reconcile.Key{Namespace: "a", Name: "web"}).Status.Conditions {
		if c.Type == typ {
			return c
		}
	}
	return metav1.Condition{}
}

// TestOptionalNode: a node whose kind is absent is left out until the kind is served, and blocks only the nodes after
// it.
func TestOptionalNode(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	for name, opts := range map[string][]dependent.Option{"in the namespace": nil, "elsewhere": {dependent.Elsewhere()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withOptional(t, opts, func(b *optionalBench) {
				if !b.has(testbed.ConfigMaps, "page") {
					b.t.Error("the other node waits")
				}
				b.wantStates("the kind is absent", dependent.StateReady, dependent.StateAbsent, dependent.StateAbsent)
				const says = "widget: it is not available: the API server does not serve Widget.example.com"
				if c := b.condition("Dependents"); c.Status != metav1.ConditionTrue || c.Message != says {
					b.t.Errorf("the condition of the graph is %+v", c)
				}
				if c := b.condition("Ready"); c.Status != metav1.ConditionTrue {
					b.t.Errorf("the gateway is not ready: %+v", c)
				}
				answer, err := b.Why(b.t.Context(), why.Object{Kind: "Gateway", Namespace: "a", Name: "web"})
				if err != nil || len(answer.Causes) == 0 || !strings.Contains(answer.Causes[0].Message, "widget is not available") {
					b.t.Errorf("why: %+v, error %v", answer, err)
				}
				if _, body := get(b.Runtime, "/readyz"); !strings.Contains(body, "ready") {
					b.t.Errorf("readyz: %s", body)
				}

				seen := len(b.server.Log().Requests)
				time.Sleep(time.Hour)
				for _, r := range b.server.Log().Requests[seen:] {
					if r.Resource != "" && r.Verb != "list" && r.Verb != "watch" {
						b.t.Errorf("a request without a change: %s %s", r.Verb, r.Resource)
					}
				}

				b.resize(2)
				b.wantStates("a node comes after it", dependent.StateReady, dependent.StateAbsent, dependent.StateWaiting)
				if c := b.condition("Ready"); c.Status == metav1.ConditionTrue || b.has(secrets, "secret") {
					b.t.Errorf("a node after the absent one does not wait: %+v", c)
				}

				b.server.Register(widgets)
				b.settle()
				b.wantStates("the kind is served", dependent.StateReady, dependent.StateReady, dependent.StateReady)
				if !b.has(widgets.GVR(), "widget") || !b.has(secrets, "secret") {
					b.t.Error("the children were not created")
				}
				if c := b.condition("Dependents"); c.Status != metav1.ConditionTrue || c.Message != "" {
					b.t.Errorf("the condition of the graph is %+v", c)
				}
				if n := b.Status(0).Controllers[0].Counts.Flows; n != 0 {
					b.t.Errorf("%d fibers wait", n)
				}
			})
		})
	}
}

// TestOptionalNodeOfADeletedPrimary: an absent kind does not block a deletion.
func TestOptionalNodeOfADeletedPrimary(t *testing.T) {
	t.Parallel()
	withOptional(t, nil, func(b *optionalBench) {
		if err := b.server.Delete(b.t.Context(), testbed.Gateways, "a", "web", metav1.DeleteOptions{}); err != nil {
			b.t.Fatal(err)
		}
		b.settle()
		if b.has(testbed.Gateways, "web") {
			b.t.Error("the gateway still exists")
		}
	})
}

// TestServedOwnedKind: a controller reconciles its objects when an optional kind that it owns is served.
func TestServedOwnedKind(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *apiserver.Server) {
		put(t, s, "owner")
		rt := fairlead.New(s.Config())
		var d diary
		reconcile.New(rt, "maps", reconcile.Func[corev1.ConfigMap](
			func(ctx context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
				d.add(cm.Name + ": " + reconcile.InfoFrom(ctx).Reasons[0].Source)
				return reconcile.Done, nil
			},
		), reconcile.Owns[metav1.PartialObjectMetadata](reconcile.Kind(widgetKind), reconcile.Optional()))
		r := run(rt)
		time.Sleep(time.Minute)
		s.Register(widgets)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := d.all(); !slices.Equal(got, []string{"owner: ConfigMap", "owner: Widget"}) {
			t.Errorf("got %q", got)
		}
		if err := r.end(); err != nil {
			t.Error(err)
		}
	})
}
