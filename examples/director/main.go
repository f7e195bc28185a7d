// Director is a small API service, as a platform team would write it on Fairlead. It keeps applications in SQLite and
// starts an operation for work that takes longer than a request.
//
//	director --listen 127.0.0.1:8080 --database director.db
//
// Its endpoints are:
//
//	POST   /applications        registers an application:
//	                            {"name": "shop", "webhook": {"url": "http://127.0.0.1:8090/cleanup"}}
//	GET    /applications[/{id}] returns all applications, or one
//	DELETE /applications/{id}   unregisters an application: calls its webhook to clean up, then deletes the row
//	GET    /operations/…        returns operations, see package operations/httpapi
//
// With the header "Prefer: respond-async" DELETE answers 202 at once, with the Location of the operation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	_ "modernc.org/sqlite"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"

	"github.com/fairlead-io/fairlead/observe"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/operations/outbox"
)

type config struct{ listen, database, namespace string }

func main() {
	var c config
	flag.StringVar(&c.listen, "listen", "127.0.0.1:8080",
		"address to listen on; loopback, since callers are not authenticated")
	flag.StringVar(&c.database, "database", "director.db", "`file` of the SQLite database")
	flag.StringVar(&c.namespace, "namespace", "default", "namespace of operations and webhooks")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	kubeconfig, err := fairlead.Config("")
	if err == nil {
		err = run(ctx, kubeconfig, c, log, func(net.Addr) {})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "director:", err)
		os.Exit(1)
	}
}

// run serves until the context ends. It calls listening with the address once it listens.
func run(
	ctx context.Context, kubeconfig *rest.Config, c config, log *slog.Logger, listening func(net.Addr),
) (err error) {
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w (choose another address with --listen)", err)
	}
	defer listener.Close()
	if !listener.Addr().(*net.TCPAddr).IP.IsLoopback() {
		return fmt.Errorf("cannot listen on %s: callers are not authenticated, so only loopback will do", c.listen)
	}
	apps, err := openApplications(ctx, c.database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, apps.close()) }()
	scheduler, err := operations.NewScheduler(operations.Options{Config: kubeconfig, Namespace: c.namespace, Logger: log})
	if err != nil {
		return err
	}
	defer scheduler.Close()

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	rt := fairlead.New(kubeconfig, fairlead.WithScheme(scheme), fairlead.WithLogger(log))
	watch := &watcher{apps: apps, client: rt.Client()}
	observe.Source[v1alpha1.Operation](rt, Unregistrations, cache.Namespaces(c.namespace))
	observe.On(rt, Unregistrations, watch.changed, observe.Name("outcomes"))

	deliver := &deliverer{apps: apps, client: rt.Client(), scheduler: scheduler, namespace: c.namespace}
	relay := &outbox.Relay{Outbox: apps.box, Deliver: deliver.deliver, Log: log}
	rt.Add("outbox", relay.Run)
	rt.Add("http", func(ctx context.Context) error {
		known, err := cache.AcquireFor[v1alpha1.Operation](rt.Cache(), cache.Namespaces(c.namespace)) // of the observer
		if err != nil {
			return err
		}
		defer known.Release()
		s := &service{apps: apps, scheduler: scheduler, log: log}
		api, err := httpapi.New(httpapi.Options{
			Scheduler: scheduler, Operations: known.Store, Authorizer: httpapi.Anonymous{}, Pending: s.pending, Logger: log,
		})
		if err != nil {
			return err
		}
		listening(listener.Addr())
		log.InfoContext(ctx, "director is listening", "address", listener.Addr().String())
		return fairlead.Serve(ctx, listener, s.handler(api))
	})
	return rt.Run(ctx)
}
