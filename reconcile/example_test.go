package reconcile_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Cloud gives out addresses. Two calls with one key return the same address.
type Cloud struct{}

func (Cloud) ReserveIP(_ context.Context, idempotencyKey string) (string, error) {
	return "192.0.2.1", nil
}
func (Cloud) ReleaseIP(_ context.Context, idempotencyKey, ip string) error { return nil }

// Gateways gives each gateway an address.
type Gateways struct {
	Client *client.Client
	Cloud  Cloud
	Ready  chan string
}

func (r *Gateways) Reconcile(ctx context.Context, gw *testbed.Gateway) (reconcile.Result, error) {
	ip, err := alloc.Once(ctx, r.Client, gw, "public-ip", r.Cloud.ReserveIP)
	if err != nil {
		return reconcile.Retry(err)
	}
	r.Ready <- ip
	return reconcile.Done, client.ModifyStatus(ctx, r.Client, gw, withReady(ip)) // reads see it, no extra reconcile
}

func (r *Gateways) Cleanup(ctx context.Context, gw *testbed.Gateway) (reconcile.Result, error) {
	return reconcile.Done, alloc.Release(ctx, r.Client, gw, "public-ip", r.Cloud.ReleaseIP)
}

func withReady(ip string) func(*testbed.Gateway) error {
	return func(gw *testbed.Gateway) error {
		reconcile.SetCondition(gw, &gw.Status.Conditions, "Ready", metav1.ConditionTrue, "Allocated", "has address "+ip)
		return nil
	}
}

// A reconciler allocates an external id exactly once.
func Example() {
	server, err := apiserver.New(apiserver.Options{Resources: testbed.Resources()})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	if _, err := server.Put(testbed.New("team-a", "web")); err != nil {
		panic(err)
	}

	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()))
	r := &Gateways{Client: rt.Client(), Ready: make(chan string, 1)}
	reconcile.New[testbed.Gateway](rt, "gateways", r, reconcile.Finalizer("example.com/gateways"))

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() {
		fmt.Println("ready:", <-r.Ready)
		stop()
	}()
	fmt.Println(rt.Run(ctx))
	// Output:
	// ready: 192.0.2.1
	// <nil>
}

// A reconciler as a function. It is called when a config map changes, or a secret that the config map names.
func ExampleWatches() {
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	for _, obj := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "settings"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "password", Labels: map[string]string{"for": "settings"},
		}},
	} {
		if _, err := server.Put(obj); err != nil {
			panic(err)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	rt := fairlead.New(server.Config(), fairlead.WithScheme(scheme.Scheme))
	reconcile.New(rt, "settings",
		reconcile.Func[corev1.ConfigMap](func(ctx context.Context, cm *corev1.ConfigMap) (reconcile.Result, error) {
			for _, why := range reconcile.InfoFrom(ctx).Reasons {
				fmt.Println(cm.Name, "because of", why)
				if why.Type == reconcile.Initial {
					err := server.Remove(corev1.SchemeGroupVersion.WithResource("secrets"), "team-a", "password")
					return reconcile.Retry(err)
				}
			}
			stop()
			return reconcile.Done, nil
		}), reconcile.Watches(func(s *corev1.Secret) []reconcile.Key {
			return []reconcile.Key{{Namespace: s.Namespace, Name: s.Labels["for"]}}
		}))
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// settings because of Initial ConfigMap team-a/settings
	// settings because of Deleted Secret team-a/password
}
