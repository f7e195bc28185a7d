package up

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
	"github.com/fairlead-io/fairlead/operations/install"
)

// runAll runs the operations controllers and the programs of --with until the context or one of them ends.
func runAll(ctx context.Context, s cli.Streams, c *cluster.Cluster, o options) error {
	calls, err := call.New(call.Options{Config: c.Config()})
	if err != nil {
		return err
	}
	defer calls.Close()
	if err := install.CRDs(ctx, calls); err != nil {
		if ctx.Err() != nil {
			return nil // interrupted, the normal end
		}
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// the controllers may call the programs until they have ended
	programsCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	var controllers, programs sync.WaitGroup
	defer programs.Wait()
	defer end()
	defer controllers.Wait()
	defer cancel(nil)
	run := func(in *sync.WaitGroup, fn func() error) {
		in.Go(func() {
			if err := fn(); err != nil {
				cancel(err)
			}
		})
	}
	ready := make(chan struct{})
	run(&controllers, func() error {
		export := func() { cli.Say(s.Out, "export KUBECONFIG=%s", cli.ShellQuote(c.KubeconfigPath())) }
		if o.controllers > 1 {
			r, err := newReplicas(s.Err, c.Dir(), c.KubeconfigPath(), o.controller)
			if err != nil {
				return err
			}
			export()
			return r.run(ctx, o.controllers, func() { close(ready) })
		}
		return runAlone(ctx, s, c, o, export, func() { close(ready) })
	})
	select {
	case <-ready:
	case <-ctx.Done():
		return endError(ctx)
	}
	for _, command := range o.programs {
		run(&programs, func() error { return runProgram(programsCtx, s.Err, c.KubeconfigPath(), command) })
	}
	for _, hint := range o.hints(calledAs(os.Args[0])) {
		cli.Say(s.Err, "%s", hint)
	}
	select {
	case <-ctx.Done():
	case <-c.Done():
		cancel(c.Err())
	}
	return endError(ctx)
}

// runAlone runs one controller in this process. serving is called when its HTTP API is served, and ready when it is
// ready.
func runAlone(ctx context.Context, s cli.Streams, c *cluster.Cluster, o options, serving, ready func()) error {
	log, err := openLog(filepath.Join(c.Dir(), "controller.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var awaiting sync.WaitGroup
	defer awaiting.Wait()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	return controller.Run(ctx, c.Config(), "default", o.controller, slog.New(slog.NewTextHandler(log, nil)),
		func(at net.Addr) {
			serving()
			awaiting.Go(func() {
				if awaitReady(ctx, "http://"+at.String()+"/readyz") == nil {
					cli.Say(s.Err, "operations controller ready, HTTP API at http://%s/operations, log in %s", at,
						log.Name())
					cli.Say(s.Err, "console at http://%s/console/", at)
					ready()
				}
			})
		})
}

// endError returns the cause of the end of ctx, or nil after an interrupt.
func endError(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
