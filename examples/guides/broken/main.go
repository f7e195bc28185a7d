// Command broken reports Deployments with unavailable replicas.
package main

import (
	"context"
	"fmt"
	"log"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/observe"
)

var (
	deployments = observe.Selector("deployments")
	broken      = observe.Selector("broken-deployments")
)

func declare(rt *fairlead.Runtime) {
	observe.Source[appsv1.Deployment](rt, deployments)
	observe.Filter(rt, broken, deployments, func(d *appsv1.Deployment) bool {
		return d.Status.UnavailableReplicas > 0
	})
	observe.On(rt, broken, report,
		observe.Name("report"),
		observe.Only(observe.OnAdded|observe.OnDeleted|observe.OnSynchronized),
		observe.OnFailure(observe.Retry, 3))
}

func report(_ context.Context, e observe.Event[appsv1.Deployment]) error {
	switch e.Type {
	case observe.Added: // it began to match the filter
		fmt.Println(e.Key, "lacks", e.Object().Status.UnavailableReplicas, "replicas")
	case observe.Deleted: // it no longer matches, or is gone
		fmt.Println(e.Key, "is no longer broken")
	case observe.Synchronized:
		fmt.Println("all existing Deployments are checked")
	}
	return nil
}

func main() {
	cfg, err := fairlead.Config("")
	if err != nil {
		log.Fatal(err)
	}
	rt := fairlead.New(cfg, fairlead.WithSignals())
	declare(rt)
	if err := rt.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
