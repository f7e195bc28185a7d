package client_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
)

// A terminating namespace has no finalizers in its metadata, but exists until its spec has none either. Reads show it,
// and a wait for its end continues.
func TestTerminatingNamespaces(t *testing.T) {
	t.Parallel()
	relabel := func(ns *corev1.Namespace) error { ns.Labels = map[string]string{"seen": "true"}; return nil }
	for _, tc := range []struct {
		reason string
		write  func(c *cluster, ns *corev1.Namespace) error
	}{
		{"deleted by this client", func(c *cluster, ns *corev1.Namespace) error { return c.client.Delete(c.ctx, ns) }},
		{"written while it is terminating", func(c *cluster, ns *corev1.Namespace) error {
			if err := c.client.Delete(c.ctx, ns); err != nil {
				return err
			}
			return client.Modify(c.ctx, c.client, ns, relabel)
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := start(t.Context(), t, setup{watch: []string{"Namespace"}})
				defer c.close()
				ns := &corev1.Namespace{
					TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "team"},
					Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
				}
				c.put(ns)
				synctest.Wait()
				if err := tc.write(c, ns); err != nil {
					t.Fatal(err)
				}
				at := client.Key{Name: "team"}
				for _, when := range []string{"at once", "when the watch has delivered it"} {
					got, err := client.Get[corev1.Namespace](c.ctx, c.client, at)
					if err != nil || got.DeletionTimestamp == nil {
						t.Errorf("%s: got %v, want a namespace that is being deleted", when, err)
					}
					synctest.Wait()
				}
				took, err := await(t, c, client.Gone[corev1.Namespace](c.client, at), time.Minute, func() {
					<-time.After(3 * time.Second)
					empty := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}} // as the namespace controller writes it
					if err := c.client.SubResource("finalize").Update(c.ctx, empty); err != nil {
						t.Error(err)
					}
				})
				if err != nil || took != 3*time.Second {
					t.Errorf("the wait ended after %v with %v, want after 3s", took, err)
				}
				if _, err := client.Get[corev1.Namespace](c.ctx, c.client, at); !apierrors.IsNotFound(err) {
					t.Errorf("got %v, want not found", err)
				}
			})
		})
	}
}
