// Command database is an operator for databases at a server outside of the cluster. Without --server it starts an
// in-memory server of its own.
//
//	make up                                        # in one terminal: a control plane
//	kubectl apply -f database/databases.yaml       # in another, in examples/, with KUBECONFIG set as make up says
//	go run ./database
package main

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/examples/database/server"
	"github.com/fairlead-io/fairlead/reconcile"
)

func main() {
	url := flag.String("server", "", "URL of the server of databases; by default one is started")
	poll := flag.Duration("poll", time.Minute, "how often it is asked whether all is as it should be")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(log, *url, *poll); err != nil {
		log.Error("cannot operate", "error", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger, url string, poll time.Duration) error {
	cfg, err := fairlead.Config("")
	if err != nil {
		return err
	}
	var listener net.Listener
	if url == "" {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
		url = "http://" + listener.Addr().String()
		log.Info("there is a server of databases", "url", url)
	}
	p := &provider{url, &http.Client{Timeout: 10 * time.Second}}
	rt, err := newOperator(cfg, p, poll, nil, fairlead.WithSignals(), fairlead.WithLogger(log))
	if err != nil {
		return err
	}
	if listener != nil {
		rt.AddAlways("server", func(ctx context.Context) error {
			return fairlead.Serve(ctx, listener, server.New().Handler())
		})
	}
	return rt.Run(context.Background())
}

// newOperator declares the operator for the given namespaces, or for all namespaces if there are none.
func newOperator(
	cfg *rest.Config, p *provider, poll time.Duration, namespaces []string, opts ...fairlead.Option,
) (*fairlead.Runtime, error) {
	s, err := newScheme()
	if err != nil {
		return nil, err
	}
	rt := fairlead.New(cfg, append(opts, fairlead.WithScheme(s), fairlead.WithFieldOwner("databases"))...)
	reconcile.New[Database](rt, "databases", &databases{rt.Client(), p, poll},
		reconcile.Primary(reconcile.From(cache.Namespaces(namespaces...))),
		reconcile.Owns[corev1.Secret](reconcile.From(cache.Namespaces(namespaces...), cache.Labels(label))),
		reconcile.WithBackoff(reconcile.Backoff{Base: 20 * time.Millisecond, Cap: time.Minute}))
	return rt, nil
}
