// Command controller-runtime is an operator with the layout of kubebuilder that uses the cache and client of
// Fairlead. Only the two marked lines of main.go differ from a plain controller-runtime operator.
package main

import (
	"context"
	"flag"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-io/fairlead/controllerruntime"
	squadsv1 "github.com/fairlead-io/fairlead/examples/controller-runtime/api/v1"
	"github.com/fairlead-io/fairlead/examples/controller-runtime/controller"
)

// settings are the command-line flags.
type settings struct {
	metrics, probes string
	elect           bool
}

func main() {
	var s settings
	flag.StringVar(&s.metrics, "metrics-bind-address", "127.0.0.1:8080", "where metrics are served; 0: nowhere")
	flag.StringVar(&s.probes, "health-probe-bind-address", "127.0.0.1:8081", "where health is served; 0: nowhere")
	flag.BoolVar(&s.elect, "leader-elect", false, "only one replica at a time is to reconcile")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), ctrl.GetConfigOrDie(), s); err != nil {
		ctrl.Log.Error(err, "cannot run")
		os.Exit(1)
	}
}

// run runs the manager until ctx ends.
func run(ctx context.Context, cfg *rest.Config, s settings) error {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := squadsv1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		NewCache:               controllerruntime.NewCache,  // the first changed line
		NewClient:              controllerruntime.NewClient, // the second changed line
		Scheme:                 scheme,
		Metrics:                server.Options{BindAddress: s.metrics},
		HealthProbeBindAddress: s.probes,
		LeaderElection:         s.elect,
		LeaderElectionID:       "squads.example.com",
	})
	if err != nil {
		return err
	}
	squads := &controller.SquadReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}
	if err := squads.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	depots := &controller.DepotReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}
	if err := depots.SetupWithManager(ctx, mgr); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
