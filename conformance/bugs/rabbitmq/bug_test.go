// Package faults plays rabbitmq/cluster-operator through every fault.
package faults

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	rabbitmqv1beta1 "github.com/rabbitmq/cluster-operator/api/v1beta1"
	"github.com/rabbitmq/cluster-operator/controllers"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-io/fairlead/simulate"
)

// A cluster of RabbitMQ becomes ready, and its volume grows.
func TestFaults(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	simulate.Test(t, simulate.Subject{Start: start, CRDs: "source/config/crd/bases"},
		simulate.Apply("testdata/cluster.yaml"),
		simulate.AwaitCondition("rabbitmqclusters/rabbit", "AllReplicasReady"),
		simulate.Patch("rabbitmqclusters/rabbit", `{"spec":{"persistence":{"storage":"15Gi"}}}`),
		simulate.AwaitCondition("rabbitmqclusters/rabbit", "ReconcileSuccess"),
		simulate.Schedules(150),
	)
}

// start does what main does, without listeners.
func start(ctx context.Context, cfg *rest.Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), rabbitmqv1beta1.AddToScheme(scheme)); err != nil {
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
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if err := (&controllers.RabbitmqClusterReconciler{
		Client:        mgr.GetClient(),
		Scheme:        mgr.GetScheme(),
		Recorder:      mgr.GetEventRecorderFor("rabbitmqcluster-controller"),
		Namespace:     "default",
		ClusterConfig: cfg,
		Clientset:     clientset,
		PodExecutor:   shell{},
	}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// shell stands in for the command line of RabbitMQ's pods, in which each command succeeds.
type shell struct{}

func (shell) Exec(*kubernetes.Clientset, *rest.Config, string, string, string, ...string) (string, string, error) {
	return "", "", nil
}
