package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/cache"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

// operatorOptions configure an operator. The zero value is valid.
type operatorOptions struct {
	watch  []cache.Option // restricts the domains and pods that it sees; all by default
	listen string         // address of the debug and metrics endpoints; none by default
	log    *slog.Logger
	engine flow.EngineOptions
	onEnd  func(domain *Domain, r flow.Result)
}

// newOperator declares an operator that keeps the pods of every domain as its spec says. Each domain with work to do
// has a fiber. Fibers that are running when the operator stops resume in the next one.
func newOperator(cfg *rest.Config, opt operatorOptions) (*fairlead.Runtime, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	if opt.log == nil {
		opt.log = slog.New(slog.DiscardHandler)
	}
	opt.engine.Logger = opt.log
	engine := flow.NewEngine(opt.engine)
	rt := fairlead.New(cfg, fairlead.WithScheme(scheme), fairlead.WithLogger(opt.log), fairlead.WithFieldOwner("domains"),
		fairlead.WithSource(opt.watch...))
	rt.Flows(engine)
	reconcile.Flow(rt, "domains", engine, reconcile.Fibers[Domain, packet]{
		Flow:     bringUp,
		Choose:   choose,
		Position: func(d *Domain) **flow.Position { return &d.Status.Flow },
		Packet:   newPacket,
		Needed:   incomplete(rt.Client()),
		OnEnd:    opt.onEnd,
	}, reconcile.Owns[corev1.Pod]())
	if opt.listen != "" {
		rt.Add("http", func(ctx context.Context) error {
			listener, err := net.Listen("tcp", opt.listen)
			if err != nil {
				return fmt.Errorf("cannot listen: %w (choose another address with --listen)", err)
			}
			return fairlead.Serve(ctx, listener, rt.Handler())
		})
	}
	return rt, nil
}

// choose returns the flow for the current state of a domain.
func choose(d *Domain) *flow.Flow[packet] {
	if seen := d.Status.ObservedGeneration; seen > 0 && seen != d.Generation {
		return roll // the domain has been available before
	}
	return bringUp
}
