// Command sites runs the controllers of this project on the cluster of its kubeconfig or of its pod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/console"

	"example.com/sites/controller"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "",
		"`file` with the cluster; default: KUBECONFIG, the service account of the pod, ~/.kube/config")
	listen := flag.String("listen", "127.0.0.1:8080",
		"`address` of /healthz, /readyz, /metrics, /debug/ and /console/; empty: none")
	inCluster := flag.Bool("in-cluster", false,
		"let one of several replicas work, and serve pages by HTTPS to callers with a token of the cluster")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(*kubeconfig, *listen, *inCluster, log); err != nil {
		fmt.Fprintln(os.Stderr, "sites:", err)
		os.Exit(1)
	}
}

func run(kubeconfig, listen string, inCluster bool, log *slog.Logger) error {
	cfg, err := fairlead.Config(kubeconfig)
	if err != nil {
		return err
	}
	opts := []fairlead.Option{fairlead.WithLogger(log), fairlead.WithSignals()}
	if inCluster {
		opts = append(opts, controller.InCluster()...)
	} else {
		opts = append(opts, fairlead.WithListen(listen), fairlead.WithConsole(console.Options{InsecureNoAuth: true}))
	}
	rt, err := controller.New(cfg, opts...)
	if err != nil {
		return err
	}
	if inCluster && listen != "" {
		if err := servePages(rt, listen); err != nil {
			return err
		}
	}
	controller.ServeWebhooks(rt, inCluster)
	//fairlead:new webhooks
	err = rt.Run(context.Background()) // until SIGINT or SIGTERM
	if errors.Is(err, syscall.EADDRINUSE) && strings.Contains(err.Error(), listen) {
		return fmt.Errorf("%w (choose another address with --listen, or with make up LISTEN=127.0.0.1:8090)", err)
	}
	return err
}
