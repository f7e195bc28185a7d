// Package faults plays a warm pool of kubernetes-sigs/agent-sandbox through every fault.
package faults

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/agent-sandbox/controllers"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/controllers"
	"sigs.k8s.io/agent-sandbox/internal/metrics"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-io/fairlead/simulate"
)

// A pool reaches its size, also after a change of the size, and never has more sandboxes than that.
func TestFaults(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	simulate.Test(t, simulate.Subject{Start: start, CRDs: "source/k8s/crds"},
		simulate.Apply("testdata/pool.yaml"),
		simulate.Await(ready(2)),
		simulate.Patch("sandboxwarmpools/pool", `{"spec":{"replicas":3}}`),
		simulate.Await(ready(3)),
		simulate.Invariant(notTooMany),
		simulate.Schedules(150),
	)
}

// start does what the command of the operator does, without listeners.
func start(ctx context.Context, cfg *rest.Config) error {
	scheme := controllers.Scheme
	if err := extensionsv1beta1.AddToScheme(scheme); err != nil {
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
	if err := (&controllers.SandboxReconciler{
		Client:        mgr.GetClient(),
		Scheme:        mgr.GetScheme(),
		Tracer:        metrics.NewNoOp(),
		ClusterDomain: "cluster.local",
	}).SetupWithManager(mgr, 1); err != nil {
		return err
	}
	if err := newPools(mgr).SetupWithManager(mgr, 1); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func ready(n int64) func(simulate.World) error {
	return func(w simulate.World) error {
		got, _, err := unstructured.NestedInt64(w.Object("sandboxwarmpools/pool").Object, "status", "readyReplicas")
		if err != nil || got != n {
			return fmt.Errorf("%d sandboxes are ready, not %d (%v)", got, n, err)
		}
		return nil
	}
}

func notTooMany(w simulate.World) error {
	pool := w.Object("sandboxwarmpools/pool")
	if pool == nil {
		return nil
	}
	size, _, err := unstructured.NestedInt64(pool.Object, "spec", "replicas")
	if err != nil {
		return err
	}
	if n := len(w.Objects("sandboxes")); n > int(size) {
		return fmt.Errorf("there are %d sandboxes in a pool of %d", n, size)
	}
	return nil
}

// newPools returns the reconciler of pools. The fix added the field Recorder.
func newPools(mgr ctrl.Manager) *extensions.SandboxWarmPoolReconciler {
	r := &extensions.SandboxWarmPoolReconciler{
		Client:                 mgr.GetClient(),
		Scheme:                 mgr.GetScheme(),
		MaxBatchSize:           300,
		EnableWarmPoolEviction: true,
	}
	if f := reflect.ValueOf(r).Elem().FieldByName("Recorder"); f.IsValid() {
		f.Set(reflect.ValueOf(mgr.GetEventRecorder("sandboxwarmpool-controller")))
	}
	return r
}
