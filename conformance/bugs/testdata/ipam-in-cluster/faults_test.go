// Package bug runs the controller of IPAddressClaims with pools that are lists of addresses.
package bug

import (
	"context"
	"errors"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"
	"sigs.k8s.io/cluster-api-ipam-provider-in-cluster/pkg/ipamutil"
	clusterv1 "sigs.k8s.io/cluster-api/api/v1beta1"
	ipamv1 "sigs.k8s.io/cluster-api/exp/ipam/api/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-io/fairlead/simulate"
)

var until = flag.Duration("for", 2*time.Minute, "the time of all runs")

func TestFaults(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	simulate.Test(t, simulate.Subject{Start: start, CRDs: "crds"},
		simulate.Apply("pool.yaml"),
		simulate.Apply("first.yaml"),
		simulate.Await(answered("first")),
		simulate.Apply("second.yaml"),
		simulate.Await(answered("second")),
		simulate.Until(*until),
	)
}

// answered returns the condition that the claim has an address.
func answered(name string) func(simulate.World) error {
	return func(w simulate.World) error {
		var claim ipamv1.IPAddressClaim
		if err := w.Into("ipaddressclaims/"+name, &claim); err != nil {
			return err
		}
		if claim.Status.AddressRef.Name == "" {
			return errors.New("the claim has no address")
		}
		return nil
	}
}

func start(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		ipamv1.AddToScheme(scheme), v1alpha2.AddToScheme(scheme)); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Metrics:    server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return err
	}
	claims := &ipamutil.ClaimReconciler{Client: mgr.GetClient(), Scheme: scheme, Adapter: lists{}}
	if err := claims.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// lists implements ipamutil.ProviderAdapter, with the options that its documentation asks for.
type lists struct{}

func (lists) SetupWithManager(_ context.Context, b *ctrl.Builder) error {
	b.For(&ipamv1.IPAddressClaim{}).Owns(&ipamv1.IPAddress{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1})
	return nil
}

func (lists) ClaimHandlerFor(c client.Client, claim *ipamv1.IPAddressClaim) ipamutil.ClaimHandler {
	return &allocation{client: c, claim: claim}
}

// allocation gives a claim the first address of its pool that no IPAddress has.
type allocation struct {
	client client.Client
	claim  *ipamv1.IPAddressClaim
	pool   v1alpha2.InClusterIPPool
}

func (a *allocation) FetchPool(ctx context.Context) (client.Object, *ctrl.Result, error) {
	key := client.ObjectKey{Namespace: a.claim.Namespace, Name: a.claim.Spec.PoolRef.Name}
	return &a.pool, nil, a.client.Get(ctx, key, &a.pool)
}

func (a *allocation) EnsureAddress(ctx context.Context, address *ipamv1.IPAddress) (*ctrl.Result, error) {
	var taken ipamv1.IPAddressList
	if err := a.client.List(ctx, &taken, client.InNamespace(a.claim.Namespace)); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(taken.Items, func(t ipamv1.IPAddress) bool { return t.Name == address.Name }) {
		return nil, nil
	}
	for _, free := range a.pool.Spec.Addresses {
		if !slices.ContainsFunc(taken.Items, func(t ipamv1.IPAddress) bool { return t.Spec.Address == free }) {
			address.Spec.Address = free
			address.Spec.Gateway, address.Spec.Prefix = a.pool.Spec.Gateway, a.pool.Spec.Prefix
			return nil, nil
		}
	}
	return nil, errors.New("the pool has no free address")
}

func (*allocation) ReleaseAddress(context.Context) (*ctrl.Result, error) { return nil, nil }
