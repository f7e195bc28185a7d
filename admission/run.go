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

// spacing is the minimum interval between looks. It bounds how often two programs with different configurations
// overwrite each other.
const spacing = time.Second

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
	if err := h.begin(ctx, degraded); err != nil {
		return err
	}
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	changed := make(chan struct{}, 1)
	unfollow, err := h.followDefinitions(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer unfollow()
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
		if failed = h.goOn(stopping, changed); failed != nil {
			stop()
		}
	})
	h.log.InfoContext(ctx, "serving webhooks", "address", listener.Addr().String(), "hooks", len(h.hooks),
		"conversions", len(h.converters))
	h.set(nil)
	close(h.done)
	err = h.server().Run(stopping, listener)
	stop()
	both.Wait()
	return errors.Join(failed, err)
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

// begin repeats look until it succeeds. It returns an error that waiting cannot resolve, unless the host is degraded.
func (h *Hooks) begin(ctx context.Context, degraded bool) error {
	policy := backoff.Policy{Base: 500 * time.Millisecond, Cap: max(h.o.Certificates.Look, 10*time.Second)}
	for i := 0; ; i++ {
		err := h.look(ctx, true)
		switch {
		case err == nil:
			if err := h.afterRepairs(); err != nil {
				return err
			}
			return h.awaitRepairs(ctx)
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

// goOn repeats look at intervals and when a definition has changed. It returns an error if the program must exit.
func (h *Hooks) goOn(ctx context.Context, changed <-chan struct{}) error {
	every := h.o.Certificates.Look
	policy := backoff.Policy{Base: 500 * time.Millisecond, Cap: every}
	failures := 0
	for {
		pause := every*3/4 + rand.N(every/2)
		if failures > 0 {
			pause = min(pause, policy.Delay(failures-1, rand.Float64))
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		err := h.look(ctx, false)
		if failures++; err == nil {
			failures = 0
		} else if ctx.Err() == nil {
			h.log.ErrorContext(ctx, "cannot maintain the webhook configurations", "error", err, "expires", h.leaf().NotAfter)
		}
		if err := h.afterRepairs(); err != nil {
			return err
		}
		h.repaired = nil
		if err := backoff.Pause(ctx, min(spacing, every)); err != nil {
			return nil //nolint:nilerr // the end of the context is no failure
		}
	}
}

func (h *Hooks) set(problem error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problem = problem
}
