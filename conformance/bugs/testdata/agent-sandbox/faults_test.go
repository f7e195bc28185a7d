// Package bug runs the controllers of sandboxes and of pools of them.
package bug

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	sandboxv1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	"sigs.k8s.io/agent-sandbox/controllers"
	poolv1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/controllers"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-io/fairlead/simulate"
)

var until = flag.Duration("for", 2*time.Minute, "the time of all runs")

func TestFaults(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	simulate.Test(t, simulate.Subject{Start: start, CRDs: "crds"},
		simulate.Apply("pool.yaml"),
		simulate.Await(ready(2)),
		simulate.Patch("sandboxwarmpools/pool", `{"spec":{"replicas":3}}`),
		simulate.Await(ready(3)),
		simulate.Invariant(notTooMany),
		simulate.Until(*until),
	)
}

// ready returns the condition that the pool has n sandboxes that are ready.
func ready(n int32) func(simulate.World) error {
	return func(w simulate.World) error {
		var pool poolv1.SandboxWarmPool
		if err := w.Into("sandboxwarmpools/pool", &pool); err != nil {
			return err
		}
		if pool.Status.ReadyReplicas != n {
			return fmt.Errorf("%d sandboxes are ready, not %d", pool.Status.ReadyReplicas, n)
		}
		return nil
	}
}

// notTooMany checks that there are no more sandboxes than the pool has replicas.
func notTooMany(w simulate.World) error {
	var pool poolv1.SandboxWarmPool
	if w.Object("sandboxwarmpools/pool") == nil {
		return nil
	}
	if err := w.Into("sandboxwarmpools/pool", &pool); err != nil {
		return err
	}
	if n := len(w.Objects("sandboxes")); n > int(*pool.Spec.Replicas) {
		return fmt.Errorf("there are %d sandboxes in a pool of %d", n, *pool.Spec.Replicas)
	}
	return nil
}

func start(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), sandboxv1.AddToScheme(scheme),
		poolv1.AddToScheme(scheme)); err != nil {
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
	sandboxes := &controllers.SandboxReconciler{
		Client: mgr.GetClient(), Scheme: scheme, Tracer: untraced{}, ClusterDomain: "cluster.local",
	}
	pools := &extensions.SandboxWarmPoolReconciler{
		Client: mgr.GetClient(), Scheme: scheme, MaxBatchSize: 300, EnableWarmPoolEviction: true,
	}
	record(mgr, sandboxes, pools)
	if err := errors.Join(sandboxes.SetupWithManager(mgr, 1), pools.SetupWithManager(mgr, 1)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// untraced is a tracer without a backend.
type untraced struct{}

func (untraced) StartSpan(ctx context.Context, _ metav1.Object, _ string, _ map[string]string) (context.Context, func()) {
	return ctx, func() {}
}

func (untraced) GetTraceContext(context.Context) string              { return "" }
func (untraced) AddEvent(context.Context, string, map[string]string) {}
func (untraced) IsRecording(context.Context) bool                    { return false }
