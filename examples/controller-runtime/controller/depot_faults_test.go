package controller_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	squadsv1 "github.com/fairlead-io/fairlead/examples/controller-runtime/api/v1"
	"github.com/fairlead-io/fairlead/examples/controller-runtime/controller"
	"github.com/fairlead-io/fairlead/simulate"
)

// On the stock cache and client of controller-runtime, the reconciler of depots serves the present inventory and leaves
// nothing behind, whatever fails. make test plays a few schedules, and make test-all more.
func TestDepotFaults(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	schedules := 40
	if os.Getenv("FAIRLEAD_SEED_BASE") != "" { // make test-all
		schedules = 200
	}
	simulate.Test(t, simulate.Subject{Start: startDepots, CRDs: "../config/crd"},
		simulate.Apply("testdata/depot.yaml"),
		simulate.Await(serves(1)),
		simulate.Patch("configmaps/tools", `{"data":{"hammer":"4"}}`),
		simulate.Await(serves(1)),
		simulate.Patch("depots/north", `{"spec":{"replicas":2}}`),
		simulate.Await(serves(2)),
		simulate.Delete("configmaps/tools"),
		simulate.Await(missesInventory),
		simulate.Delete("depots/north"),
		simulate.Gone("depots/north"),
		simulate.Gone("configmaps/depots/depot.default.north"),
		simulate.Schedules(schedules),
	)
}

// startDepots runs the reconciler of depots with the defaults of controller-runtime.
func startDepots(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), squadsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 server.Options{BindAddress: "0"},
		Controller:              config.Controller{SkipNameValidation: new(true)},
		LeaderElection:          true,
		LeaderElectionID:        "squads.example.com",
		LeaderElectionNamespace: "default",
	})
	if err != nil {
		return err
	}
	depots := &controller.DepotReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}
	if err := depots.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// serves returns the condition that n pods serve the present inventory.
func serves(n int32) func(simulate.World) error {
	return func(w simulate.World) error {
		var depot squadsv1.Depot
		var deployment appsv1.Deployment
		var wares corev1.ConfigMap
		err := errors.Join(w.Into("depots/north", &depot), w.Into("deployments/north", &deployment),
			w.Into("configmaps/tools", &wares))
		if err != nil {
			return err
		}
		if deployment.Spec.Template.Annotations["squads.example.com/inventory"] != sum(wares.Data) {
			return errors.New("the pods serve an earlier inventory")
		}
		ready := meta.FindStatusCondition(depot.Status.Conditions, squadsv1.DepotReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != depot.Generation {
			return fmt.Errorf("the depot is not ready: %v", ready)
		}
		if depot.Status.Available != n {
			return fmt.Errorf("%d pods serve, not %d", depot.Status.Available, n)
		}
		return nil
	}
}

func missesInventory(w simulate.World) error {
	var depot squadsv1.Depot
	if err := w.Into("depots/north", &depot); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(depot.Status.Conditions, squadsv1.DepotReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != "NoInventory" {
		return fmt.Errorf("the condition is %v", ready)
	}
	return nil
}

// sum returns the checksum of an inventory.
func sum(data map[string]string) string {
	b, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(b))
}
