// Observers prints what happens to the ConfigMaps of a cluster: KUBECONFIG=… observers, then kubectl create configmap …
package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/observe"
)

var configMaps = observe.Selector("configmaps")

func main() {
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	cfg, err := fairlead.Config("")
	if err == nil {
		listen := cmp.Or(os.Getenv("METRICS"), "127.0.0.1:9090")
		err = newObserver(cfg, log, fairlead.WithSignals(), fairlead.WithListen(listen)).Run(context.Background())
	}
	if err != nil {
		log.Error("cannot observe", "error", err)
		os.Exit(1)
	}
}

func newObserver(cfg *rest.Config, log *slog.Logger, opts ...fairlead.Option) *fairlead.Runtime {
	rt := fairlead.New(cfg, append(opts, fairlead.WithLogger(log))...)
	observe.Source[corev1.ConfigMap](rt, configMaps, cache.Fields("metadata.name!=kube-root-ca.crt"))
	observe.On(rt, configMaps, func(ctx context.Context, e observe.Event[corev1.ConfigMap]) error {
		if e.Type == observe.Modified {
			log.InfoContext(ctx, "changed", "key", e.Key, "old", e.Prior().Data, "new", e.Object().Data)
		} else {
			log.InfoContext(ctx, e.Type.String(), "key", e.Key, "initial", e.Initial)
		}
		return nil
	})
	return rt
}
