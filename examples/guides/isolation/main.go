// Command isolation keeps a NetworkPolicy in each Namespace with the label example.com/isolated=true.
package main

import (
	"context"
	"log"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
)

type isolation struct{ client *client.Client }

func (r *isolation) Reconcile(ctx context.Context, ns *corev1.Namespace) (reconcile.Result, error) {
	if ns.DeletionTimestamp != nil {
		return reconcile.Done, nil
	}
	if ns.Labels["example.com/isolated"] != "true" {
		return r.remove(ctx, ns)
	}
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "deny-ingress"},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
	if err := reconcile.Own(r.client, ns, policy); err != nil {
		return reconcile.Retry(err)
	}
	return reconcile.Retry(r.client.Apply(ctx, policy)) // no request if the cached policy is already like this
}

func (r *isolation) remove(ctx context.Context, ns *corev1.Namespace) (reconcile.Result, error) {
	for policy, err := range client.List[networkingv1.NetworkPolicy](ctx, r.client, client.OwnedBy(ns)) {
		if err == nil {
			err = r.client.Delete(ctx, policy, client.IgnoreNotFound())
		}
		if err != nil {
			return reconcile.Retry(err)
		}
	}
	return reconcile.Done, nil
}

func newOperator(cfg *rest.Config, opts ...fairlead.Option) *fairlead.Runtime {
	rt := fairlead.New(cfg, opts...)
	reconcile.New[corev1.Namespace](rt, "isolation", &isolation{rt.Client()},
		reconcile.Owns[networkingv1.NetworkPolicy]())
	return rt
}

func main() {
	cfg, err := fairlead.Config("")
	if err != nil {
		log.Fatal(err)
	}
	rt := newOperator(cfg, fairlead.WithSignals(),
		fairlead.WithListen(":9090"), fairlead.WithLeaderElection("default", "isolation"))
	if err := rt.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
