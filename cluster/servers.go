package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead-io/fairlead/cluster/kubelet"
)

// The functions of this file start and stop one server. The caller holds c.op or has exclusive access to c.

const (
	pollInterval = 25 * time.Millisecond
	pollTimeout  = 2 * time.Second // of one request
)

func (c *Cluster) startEtcd(ctx context.Context) error {
	p, err := c.etcd.start()
	if err != nil {
		return err
	}
	c.etcdRun = p
	return c.await(ctx, &c.etcdRun, c.etcd.ready)
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	p, err := c.api.start()
	if err != nil {
		return err
	}
	c.apiRun = p
	return c.await(ctx, &c.apiRun, c.api.ready)
}

// startManager starts kube-controller-manager, if there is one, on a free port.
func (c *Cluster) startManager(ctx context.Context) error {
	if c.manager.binary == "" {
		return nil
	}
	_, err := c.onFreePort(ctx, 0, func(port int) error {
		c.manager.port = port
		p, err := c.manager.start()
		if err != nil {
			return err
		}
		c.managerRun = p
		return c.await(ctx, &c.managerRun, c.manager.ready)
	})
	return err
}

// startKubelet runs the stand-in for a node until endKubelet is called, which waits for its end. It returns when the
// node is registered.
func (c *Cluster) startKubelet(ctx context.Context) error {
	running, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan struct{})
	var err error
	c.watchers.Go(func() {
		defer close(ended)
		o := kubelet.Options{Logger: c.log, Ready: sync.OnceFunc(func() { close(ready) })}
		if err = kubelet.Run(running, c.Config(), o); err == nil {
			return
		}
		err = fmt.Errorf("kubelet: %w", err)
		select {
		case <-ready:
			c.log.ErrorContext(running, "kubelet ended by itself", "error", err)
			c.fail(err)
		default: // startKubelet returns it
		}
	})
	c.endKubelet = func() { cancel(); <-ended }
	ctx, done := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("%w (%s): kubelet", ErrNotReady, c.timeout))
	defer done()
	select {
	case <-ready:
		return nil
	case <-ended:
		return err
	case <-ctx.Done():
		c.endKubelet()
		return context.Cause(ctx)
	}
}

// onFreePort calls start with the preferred port or, if that is taken, with another one, which it returns.
func (c *Cluster) onFreePort(ctx context.Context, preferred int, start func(port int) error) (int, error) {
	for attempt := 1; ; attempt++ {
		port, err := choosePort(preferred)
		if err != nil {
			return 0, err
		}
		err = start(port)
		switch {
		case err == nil:
			return port, nil
		case attempt == 3 || !errors.Is(err, errAddressInUse):
			return 0, err
		}
		c.log.WarnContext(ctx, "port was taken, trying another", "port", port)
		preferred = 0
	}
}

// await waits until the server is ready. On failure it ends the process; on success it watches the process.
func (c *Cluster) await(ctx context.Context, slot **process, ready func(context.Context) error) error {
	p := *slot
	err := poll(ctx, c.timeout, p.done, ready)
	switch {
	case err == nil:
		c.watch(p)
		return nil
	case p.exited():
		err = p.exitFailure()
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = p.failure(fmt.Errorf("%w (%s): %w", ErrNotReady, c.timeout, err))
	}
	*slot = nil
	p.stop(0)
	return err
}

// watch reports an unexpected end of a process.
func (c *Cluster) watch(p *process) {
	c.watchers.Go(func() {
		<-p.done
		if p.wanted.Load() {
			return
		}
		err := p.exitFailure()
		c.log.Error("server ended by itself", "server", p.name, "error", err)
		c.fail(err)
	})
}

func (c *Cluster) endAPIServer(grace time.Duration) {
	if c.apiRun != nil {
		c.apiRun.stop(grace)
		c.apiRun = nil
	}
}

func (c *Cluster) endManager() {
	if c.managerRun != nil {
		c.managerRun.stop(0)
		c.managerRun = nil
	}
}

func (c *Cluster) endEtcd(grace time.Duration) {
	if c.etcdRun != nil {
		c.etcdRun.stop(grace)
		c.etcdRun = nil
	}
}

// poll calls ask until it succeeds, the process has ended or the limit is reached. It returns the last error of ask.
func poll(ctx context.Context, limit time.Duration, ended <-chan struct{}, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		once, done := context.WithTimeout(ctx, pollTimeout)
		err := ask(once)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return err
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
