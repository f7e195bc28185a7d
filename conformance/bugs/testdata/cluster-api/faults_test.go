// Package bug runs the controller of MachineDeployments.
package bug

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-io/fairlead/simulate"
)

var until = flag.Duration("for", 2*time.Minute, "the time of all runs")

func TestFaults(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	simulate.Test(t, simulate.Subject{Start: start, CRDs: "crds"},
		simulate.Apply("workers.yaml"),
		simulate.Await(machineSets(1)),
		simulate.Patch("machinedeployments/workers", `{"spec":{"template":{"spec":{"version":"v1.37.1"}}}}`),
		simulate.Await(machineSets(2)),
		simulate.Until(*until),
	)
}

// machineSets returns the condition that there are n MachineSets or more.
func machineSets(n int) func(simulate.World) error {
	return func(w simulate.World) error {
		if m := len(w.Objects("machinesets")); m < n {
			return fmt.Errorf("there are %d MachineSets, not %d", m, n)
		}
		return nil
	}
}

func start(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		apiextensionsv1.AddToScheme(scheme)); err != nil {
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
	if err := setup(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
