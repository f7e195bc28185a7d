// Command cronjob is an operator that creates Jobs on a schedule, like the CronJob operator of the kubebuilder
// tutorial.
//
//	make up                                       # in one terminal: a control plane
//	kubectl apply -f cronjob/cronjobs.yaml        # in another, in examples/, with KUBECONFIG set as make up says
//	go run ./cronjob
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/reconcile"
)

func main() {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, err := fairlead.Config("")
	if err == nil {
		var rt *fairlead.Runtime
		if rt, err = newRuntime(cfg, fairlead.WithSignals(), fairlead.WithLogger(log)); err == nil {
			declare(rt, &cronJobs{c: rt.Client(), now: time.Now})
			err = rt.Run(context.Background())
		}
	}
	if err != nil {
		log.Error("cannot operate", "error", err)
		os.Exit(1)
	}
}

func newRuntime(cfg *rest.Config, opts ...fairlead.Option) (*fairlead.Runtime, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	return fairlead.New(cfg, append(opts, fairlead.WithScheme(s), fairlead.WithFieldOwner("cronjobs"))...), nil
}

// declare registers a controller for the CronJobs of the given namespaces, or of all namespaces if there are none.
func declare(rt *fairlead.Runtime, r reconcile.Reconciler[CronJob], namespaces ...string) *reconcile.Controller {
	in := reconcile.From(cache.Namespaces(namespaces...))
	return reconcile.New[CronJob](rt, "cronjobs", r, reconcile.Primary(in), reconcile.Owns[batchv1.Job](in))
}
