package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/internal/backoff"
	"github.com/fairlead-io/fairlead/internal/serve"
)

// run listens, has everything be as it should, serves, and goes on looking until the context ends.
func (h *Hooks) run(ctx context.Context, degraded bool) error {
	listener := h.o.Listener
	if listener == nil {
		var err error
		if listener, err = net.Listen("tcp", h.o.Listen); err != nil {
			return fmt.Errorf("cannot listen: %w", err)
		}
	}
	defer listener.Close()
	if err := h.begin(ctx, degraded); err != nil {
		return err
	}
	var both sync.WaitGroup
	defer both.Wait()
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	both.Go(func() {
		defer stop()
		select {
		case <-stopping.Done(): // it serves no more
			return
		case <-ctx.Done():
		}
		if h.o.Linger > 0 { // the API server sends more for a moment
			_ = backoff.Pause(stopping, h.o.Linger)
		}
	})
	both.Go(func() { h.goOn(stopping) })
	h.log.InfoContext(ctx, "serving webhooks", "address", listener.Addr().String(), "hooks", len(h.hooks),
		"conversions", len(h.converters))
	h.set(nil)
	close(h.done)
	return h.server().Run(stopping, listener)
}

func (h *Hooks) server() *serve.Server {
	return serve.New(h.handler(), serve.Options{
		TLS: &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return h.serving.Load(), nil },
		},
		WriteTimeout: maxTimeout + 5*time.Second, Drain: h.o.Drain, Logger: h.log,
	})
}

// begin looks until all is as it should be. What no waiting mends is an error, unless the host bears it.
func (h *Hooks) begin(ctx context.Context, degraded bool) error {
	policy := backoff.Policy{Base: 500 * time.Millisecond, Cap: max(h.o.Certificates.Look, 10*time.Second)}
	for i := 0; ; i++ {
		err := h.look(ctx, true)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrNotServed) && !degraded:
			return err
		}
		h.set(err)
		h.log.ErrorContext(ctx, "webhooks are not served yet", "error", err)
		if err := backoff.Pause(ctx, policy.Delay(i, rand.Float64)); err != nil {
			return err
		}
	}
}

// goOn looks every so often.
func (h *Hooks) goOn(ctx context.Context) {
	every := h.o.Certificates.Look
	for {
		if err := backoff.Pause(ctx, every*3/4+rand.N(every/2)); err != nil {
			return
		}
		if err := h.look(ctx, false); err != nil && ctx.Err() == nil {
			h.log.ErrorContext(ctx, "cannot look after webhooks", "error", err, "expires", h.leaf().NotAfter)
		}
	}
}

func (h *Hooks) set(problem error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problem = problem
}
