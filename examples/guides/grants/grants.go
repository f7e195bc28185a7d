// Package grants copies Secrets to a vault with a flow that waits for the Secret, and runs again when it changes.
package grants

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
)

// Vault stores secrets outside of the cluster.
type Vault interface {
	Store(ctx context.Context, name string, data map[string][]byte) error // the same data changes nothing
}

type task = reconcile.Task[Grant] // the object of the fiber, and a client

// Declare declares the controller of Grants.
func Declare(rt *fairlead.Runtime, vault Vault) {
	var grants *reconcile.Controller
	follow := func(g *Grant) error { // its Secret, and no other
		return reconcile.Follow[corev1.Secret](grants, client.KeyOf(g), "secret", reconcile.From(
			cache.Namespaces(g.Namespace), cache.Fields("metadata.name="+g.Spec.Secret)))
	}
	push := flow.New("push",
		flow.Step("wait-secret", func(_ context.Context, f *flow.Fiber[task]) flow.Next {
			t := f.Packet
			if err := follow(t.Object); err != nil {
				return f.Fail(err)
			}
			exists := func(s *corev1.Secret) (bool, error) { return s != nil, nil }
			return f.Await(client.When(t.Client, secretOf(t.Object), exists), flow.Timeout(time.Hour))
		}),
		flow.Step("store", flow.Do(func(ctx context.Context, t *task) error {
			secret, err := client.Get[corev1.Secret](ctx, t.Client, secretOf(t.Object))
			if err != nil {
				return err
			}
			flow.Blocking(ctx, func() { err = vault.Store(ctx, t.Object.Name, secret.Data) })
			if err != nil {
				return err
			}
			version := secret.ResourceVersion
			t.SetStatus(func(g *Grant) error {
				g.Status.SecretVersion = version
				reconcile.SetCondition(g, &g.Status.Conditions, "Ready", metav1.ConditionTrue, "Stored", "")
				return nil
			})
			return nil
		}), flow.Retry(flow.Backoff{Base: time.Second, Max: time.Minute})),
	)
	grants = reconcile.Flow(rt, "grants", rt.Engine(), reconcile.Fibers[Grant, task]{
		Flow:     push,
		Packet:   func(_ context.Context, t *task) (*task, error) { return t, nil },
		Position: func(g *Grant) **flow.Position { return &g.Status.Flow },
		Needed: func(ctx context.Context, g *Grant) (bool, error) { // the Secret is newer than its copy
			if err := follow(g); err != nil {
				return false, err
			}
			secret, err := client.Get[corev1.Secret](ctx, rt.Client(), secretOf(g))
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil && secret.ResourceVersion != g.Status.SecretVersion, err
		},
	}, reconcile.Needs(rights.Of(corev1.SchemeGroupVersion.WithKind("Secret"), "get", "list", "watch")))
}

func secretOf(g *Grant) client.Key { return client.Key{Namespace: g.Namespace, Name: g.Spec.Secret} }
