package e2e_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/reconcile"
	"github.com/fairlead-io/fairlead/rights"
)

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// parent keeps a config map for each gateway until the gateway is deleted. The gateway "odd" always fails.
type parent struct{ c *client.Client }

func (p parent) Reconcile(ctx context.Context, g *gateway) (reconcile.Result, error) {
	if g.Name == "odd" {
		return reconcile.Terminal(errors.New("no such size"))
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name + "-child"}}
	if err := reconcile.Own(p.c, g, child); err != nil {
		return reconcile.Retry(err)
	}
	if err := p.c.Apply(ctx, child); err != nil {
		return reconcile.Retry(err)
	}
	return reconcile.Retry(client.ModifyStatus(ctx, p.c, g, func(g *gateway) error { g.Status.Count = 1; return nil }))
}

func (p parent) Cleanup(ctx context.Context, g *gateway) (reconcile.Result, error) {
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name + "-child"}}
	return reconcile.Retry(p.c.Delete(ctx, child, client.IgnoreNotFound()))
}

// TestComputedRightsAreEnough: with exactly the rights computed from its declarations, a program gets no request
// refused. It uses observers, children, status, finalizers, Events, flows, and an election or a group.
func TestComputedRightsAreEnough(t *testing.T) {
	for name, share := range map[string]func(ns string) fairlead.Option{
		"election": func(ns string) fairlead.Option { return fairlead.WithLeaderElection(ns, "asking") },
		"shards":   func(ns string) fairlead.Option { return fairlead.WithShards(ns, "asking") },
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			account := rights.Account{Namespace: b.namespace, Name: b.namespace}
			declare := func(rt *fairlead.Runtime, seen chan<- string, e *flow.Engine) {
				observe.Source[corev1.Secret](rt, "secrets")
				observe.On(rt, "secrets", func(_ context.Context, e observe.Event[corev1.Secret]) error {
					seen <- e.Key.Name
					return nil
				})
				reconcile.New(rt, "parents", parent{rt.Client()}, reconcile.Owns[corev1.ConfigMap](),
					reconcile.Primary(reconcile.If(func(g *gateway) bool { return g.Name != "flow" })),
					reconcile.Needs(rights.Of(configMaps, "create", "patch", "delete"),
						rights.Status(testbed.GroupVersion.WithKind("Gateway"), "patch")))
				reconcile.Flow(rt, "flows", e, reconcile.Fibers[gateway, gateway]{
					Flow: flow.New("one", flow.Step("only", flow.Do(func(context.Context, *gateway) error { return nil }),
						flow.Undo(flow.Do(func(context.Context, *gateway) error { return nil })))),
					Position: func(g *gateway) **flow.Position { return &g.Status.Flow },
				}, reconcile.Primary(reconcile.If(func(g *gateway) bool { return g.Name == "flow" })))
			}
			opts := []fairlead.Option{
				fairlead.WithScheme(testbed.Scheme()), fairlead.WithSource(cache.Namespaces(b.namespace)), share(b.namespace),
			}
			engine := flow.NewEngine(flow.EngineOptions{})
			t.Cleanup(func() { _ = engine.Close(context.WithoutCancel(t.Context())) })

			plan := fairlead.New(env.Config(t), opts...)
			defer plan.Client().Close()
			declare(plan, nil, engine)
			objects, err := rights.Manifests(plan.Client().Mapper(), account, plan.Rights())
			if err != nil {
				t.Fatal(err)
			}
			seen := make(chan string, 10)
			b.rt = fairlead.New(env.Limited(t, account.User(), objects...), opts...)
			declare(b.rt, seen, engine)
			b.run()

			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "key"}}
			if err := b.user.Create(b.ctx, secret); err != nil {
				t.Fatal(err)
			}
			select {
			case <-seen:
			case <-b.ctx.Done():
				t.Fatal("the observer was not called")
			}
			b.create("web")
			b.create("flow")
			b.create("odd")
			await(b.ctx, t, func() bool {
				web, flow := b.get("web"), b.get("flow")
				return web.Status.Count == 1 && flow.Status.Flow != nil && flow.Status.Flow.Ended
			})
			await(b.ctx, t, func() bool {
				all := &corev1.EventList{}
				if err := b.user.List(b.ctx, all, client.InNamespace(b.namespace)); err != nil {
					t.Fatal(err)
				}
				for _, e := range all.Items {
					if e.InvolvedObject.Name == "odd" {
						return true
					}
				}
				return false
			})
			for _, name := range []string{"web", "flow"} {
				if err := b.user.Delete(b.ctx, b.get(name)); err != nil {
					t.Fatal(err)
				}
			}
			await(b.ctx, t, func() bool { return b.get("web") == nil && b.get("flow") == nil })
			child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "web-child"}}
			if err := b.user.Get(b.ctx, client.KeyOf(child), child); !apierrors.IsNotFound(err) {
				t.Errorf("the child still exists: %v", err)
			}
		})
	}
}
