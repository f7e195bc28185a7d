package main

import (
	"context"
	_ "embed"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Gateway needs one public address.
type Gateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            GatewayStatus `json:"status,omitempty"`
}

// GatewayStatus is the observed state of a Gateway.
type GatewayStatus struct {
	Address   string      `json:"address,omitempty"`
	Allocated alloc.Slots `json:"allocated,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (g *Gateway) DeepCopyObject() runtime.Object {
	out := &Gateway{TypeMeta: g.TypeMeta, Status: GatewayStatus{
		Address: g.Status.Address, Allocated: g.Status.Allocated.DeepCopy(),
	}}
	g.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return out
}

var kind = schema.GroupVersionKind{Group: "example.fairlead.io", Version: "v1", Kind: "Gateway"}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(kind, &Gateway{})
	metav1.AddToGroupVersion(s, kind.GroupVersion())
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		return nil, err
	}
	return s, scheme.AddToScheme(s)
}

const slot = "public-ip"

// gateways is the controller. It is all the code that a user has to write.
type gateways struct {
	c     *client.Client
	cloud *cloudClient
}

// Reconcile implements reconcile.Reconciler.
func (r *gateways) Reconcile(ctx context.Context, g *Gateway) (reconcile.Result, error) {
	address, err := alloc.Once(ctx, r.c, g, slot, r.cloud.reserve)
	if err != nil {
		return reconcile.Retry(err)
	}
	return reconcile.Done, client.ModifyStatus(ctx, r.c, g,
		func(g *Gateway) error { g.Status.Address = address; return nil })
}

// Cleanup implements reconcile.Cleaner.
func (r *gateways) Cleanup(ctx context.Context, g *Gateway) (reconcile.Result, error) {
	return reconcile.Done, alloc.Release(ctx, r.c, g, slot, r.cloud.release)
}

// newOperator declares the operator. Its Run returns when the context ends.
func newOperator(
	cfg *rest.Config, cloud *cloudClient, namespace string, opts ...fairlead.Option,
) (*fairlead.Runtime, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	rt := fairlead.New(cfg, append(opts, fairlead.WithScheme(s), fairlead.WithFieldOwner("gateways"))...)
	reconcile.New[Gateway](rt, "gateways", &gateways{rt.Client(), cloud},
		reconcile.Primary(reconcile.From(cache.Namespaces(namespace))),
		reconcile.WithBackoff(reconcile.Backoff{Base: 20 * time.Millisecond, Cap: time.Second}))
	return rt, nil
}

//go:embed gateways.yaml
var definition []byte

// install applies the custom resource definition and returns when the API server serves it.
func install(ctx context.Context, c *client.Client) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(definition, &crd); err != nil {
		return err
	}
	if err := c.Apply(ctx, &crd, client.Force()); err != nil {
		return err
	}
	for {
		_, err := c.Mapper().RESTMapping(kind.GroupKind(), kind.Version)
		if !meta.IsNoMatchError(err) {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
