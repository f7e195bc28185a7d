package reconcile_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// TestWatchOfMetadata: a kind that is watched by metadata, with functions of metadata, has a store of metadata.
func TestWatchOfMetadata(t *testing.T) {
	type meta = metav1.PartialObjectMetadata
	kind := reconcile.Kind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	owns := func(opts ...reconcile.WatchOption) reconcile.Option {
		return reconcile.Owns[meta](append(opts, kind)...)
	}
	for reason, tc := range map[string]struct {
		options []reconcile.Option
		want    []bool // for each store, whether it holds metadata
	}{
		"owned": {[]reconcile.Option{owns()}, []bool{true}},
		"owned, and filtered by metadata": {[]reconcile.Option{
			owns(reconcile.If(func(m *meta) bool { return m.Name != "" }), reconcile.IfSpecChanged()),
		}, []bool{true}},
		"owned, and filtered by content": {[]reconcile.Option{
			owns(reconcile.If(func(cm *corev1.ConfigMap) bool { return cm.Data["a"] != "x" })),
		}, []bool{false}},
		"mapped": {[]reconcile.Option{
			reconcile.Watches(func(m *meta) []reconcile.Key { return nil }, kind), owns(),
		}, []bool{true}},
		"owned, and mapped by content": {[]reconcile.Option{
			owns(), reconcile.Watches(func(*corev1.ConfigMap) []reconcile.Key { return nil }),
		}, []bool{false}},
	} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(b *bench) {
				b.controller(func(context.Context, int, *gateway) (reconcile.Result, error) { return reconcile.Done, nil },
					tc.options...)
				b.put("web")
				b.start()
				var got []bool
				for _, st := range b.host.Cache().Stores(corev1.SchemeGroupVersion.WithResource("configmaps")) {
					got = append(got, st.Options().Content.Metadata)
				}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Errorf("stores of metadata (-want +got):\n%s", d)
				}
				g, err := b.server.Object(testbed.Gateways, "a", "web")
				if err != nil {
					t.Fatal(err)
				}
				cm := configMap("cm")
				cm.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(g, g.GroupVersionKind())}
				n := b.count()
				testbed.Put(t, b.server, cm)
				b.settle()
				if b.count() != n+1 {
					t.Errorf("%d calls after an owned object was created, %d before", b.count(), n)
				}
			})
		})
	}
}

// TestReconcileMetadata: objects are reconciled by their metadata. The client reads and writes the whole object.
func TestReconcileMetadata(t *testing.T) {
	bubble(t, func(b *bench) {
		calls := 0
		reconcile.New(b.host, "meta", reconcile.Func[metav1.PartialObjectMetadata](
			func(ctx context.Context, m *metav1.PartialObjectMetadata) (reconcile.Result, error) {
				calls++
				whole, err := client.Get[gateway](ctx, b.client(), client.KeyOf(m))
				if err != nil || whole.Spec.Ref != "one" || m.Kind != "Gateway" {
					t.Errorf("%s %s is read as %+v, %v", m.Kind, m.Name, whole, err)
				}
				return reconcile.Done, client.Modify(ctx, b.client(), m, func(m *metav1.PartialObjectMetadata) error {
					m.Labels = map[string]string{"seen": "true"}
					return nil
				})
			}), reconcile.Primary(reconcile.Kind(testbed.GroupVersion.WithKind("Gateway"))))
		b.put("web", func(g *gateway) { g.Spec.Ref = "one" })
		b.start()
		g := testbed.Stored(b.server, web)
		if calls != 1 || g.Labels["seen"] != "true" || g.Spec.Ref != "one" {
			t.Errorf("%d calls, remaining: %+v", calls, g)
		}
		b.change(func(u *unstructured.Unstructured) { u.SetLabels(nil) })
		b.settle()
		if g = testbed.Stored(b.server, web); calls != 2 || g.Labels["seen"] != "true" {
			t.Errorf("%d calls, remaining: %+v", calls, g)
		}
	})
}
