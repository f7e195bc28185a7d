package admission

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/serve"
)

// run listens, configures the hooks, serves them, and repeats the checks until the context ends.
func (h *Hooks) run(ctx context.Context, degraded bool) error {
	listener := h.o.Listener
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", h.o.Listen); err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
	}
	defer listener.Close()
	hooks, converters := h.declared.all()
	manifests := &manifests{o: h.o, mapper: h.host.Client().Mapper(), hooks: hooks, converters: converters}
	keeper := h.keeper(manifests)
	if err := keeper.begin(ctx, degraded, h.readiness.failed); err != nil {
		return err
	}
	targets, err := manifests.targets()
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 1)
	unfollow, err := followDefinitions(h.host.Cache(), h.o.Name, targets, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer unfollow()
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var both sync.WaitGroup
	both.Go(func() {
		defer stop()
		select {
		case <-stopping.Done(): // the server has stopped
			return
		case <-ctx.Done():
		}
		if h.o.Linger > 0 { // the API server still sends requests for a moment
			_ = backoff.Pause(stopping, h.o.Linger)
		}
	})
	var failed error
	both.Go(func() {
		if failed = keeper.run(stopping, changed); failed != nil {
			stop()
		}
	})
	h.log.InfoContext(ctx, "serving webhooks", "address", listener.Addr().String(), "hooks", len(hooks),
		"conversions", len(converters))
	h.readiness.served()
	err = serve.New(h.server.handler(hooks, converters), serve.Options{
		TLS: h.certificate.config(), WriteTimeout: maxTimeout + 5*time.Second, Drain: h.o.Drain, Logger: h.log,
	}).Run(stopping, listener)
	stop()
	both.Wait()
	return errors.Join(failed, err)
}

// keeper returns a keeper of the manifests.
func (h *Hooks) keeper(m *manifests) *keeper {
	calls, manager := h.host.Calls(), "fairlead-admission-"+h.o.Name
	written := func(kind string) { h.metrics.writes.WithLabelValues(kind).Inc() }
	return &keeper{
		calls: calls, manifests: m,
		authorities: &authorities{
			calls: calls, namespace: h.o.Namespace, secret: h.o.Secret, name: h.o.Name,
			lifetimes: h.o.Certificates.lifetimes(), now: h.o.Certificates.Now, log: h.log,
			written: func() { written("Secret") },
		},
		certificate: h.certificate,
		repairs: &repairs{
			calls: calls, client: h.host.Client(), name: h.o.Name, manager: manager, exit: h.o.ExitOnLostFields, log: h.log,
		},
		manager: manager, hosts: h.o.hosts(), every: h.o.Certificates.Look, log: h.log, written: written,
	}
}
