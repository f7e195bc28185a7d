package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/conditions"
	"github.com/fairlead-io/fairlead/dependent"
	"github.com/fairlead-io/fairlead/reconcile"
)

// newOperatorByHand is the same operator without a graph: what the graph does has to be written, and more of it is
// missing than one sees: who owned an object before it is applied, what is contended for, the order of deletion.
func newOperatorByHand(cfg *rest.Config, opts ...fairlead.Option) (*fairlead.Runtime, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	rt := fairlead.New(cfg, append(opts, fairlead.WithScheme(scheme))...)
	reconcile.New[WebPage](rt, "webpages", &byHand{rt.Client()}, reconcile.Owns[corev1.ConfigMap](),
		reconcile.Owns[appsv1.Deployment](), reconcile.Owns[corev1.Service](), reconcile.Owns[networkingv1.Ingress]())
	return rt, nil
}

type byHand struct{ c *client.Client }

func (r *byHand) Reconcile(ctx context.Context, p *WebPage) (reconcile.Result, error) {
	s := conditions.Of(p)
	ready, err := r.children(ctx, p)
	switch {
	case err != nil:
		s.False("Dependents", "Failed", "%v", err)
	case !ready:
		s.Unknown("Dependents", "Waiting", "the server is not ready")
	default:
		s.True("Dependents", "Ready", "")
	}
	told := client.ModifyStatus(ctx, r.c, p, func(p *WebPage) error {
		p.Status.URL = ""
		if ready && p.Spec.Exposed {
			p.Status.URL = "http://" + host(p)
		}
		s.Into(&p.Status.Conditions)
		return nil
	})
	if err != nil {
		return reconcile.Retry(err)
	}
	return reconcile.Retry(told)
}

func (r *byHand) children(ctx context.Context, p *WebPage) (ready bool, err error) {
	html, err := desiredConfigMap(ctx, p)
	if err != nil {
		return false, err
	}
	if err := r.apply(ctx, p, html); err != nil {
		return false, err
	}
	server, err := desiredDeployment(ctx, p)
	if err != nil {
		return false, err
	}
	if err := r.apply(ctx, p, server); err != nil {
		return false, err
	}
	if server, err = client.Get[appsv1.Deployment](ctx, r.c,
		client.KeyOf(server)); err != nil || !dependent.IsReady(server) {
		return false, err
	}
	service, err := desiredService(ctx, p)
	if err != nil {
		return false, err
	}
	if err := r.apply(ctx, p, service); err != nil {
		return false, err
	}
	ingress, err := desiredIngress(ctx, p)
	if err != nil {
		return false, err
	}
	if p.Spec.Exposed {
		return true, r.apply(ctx, p, ingress)
	}
	for old, err := range client.List[networkingv1.Ingress](ctx, r.c, client.OwnedBy(p)) {
		if err != nil {
			return false, err
		}
		if err := r.c.Delete(ctx, old.DeepCopy(), client.SameUID(), client.IgnoreNotFound()); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (r *byHand) apply(ctx context.Context, p *WebPage, child client.Object) error {
	child.SetNamespace(p.Namespace)
	if err := reconcile.Own(r.c, p, child); err != nil {
		return err
	}
	return r.c.Apply(ctx, child, client.Force())
}
