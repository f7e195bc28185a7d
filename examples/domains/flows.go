package main

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/flow"
)

const managedLimit = 8 // managed servers of one domain that start at a time

// bringUp starts the servers of a new domain: the admin server first, then the managed ones side by side.
var bringUp = domainFlow("bring-up", phaseStarting, managedLimit)

// roll replaces the servers of a domain that runs, one after the other.
var roll = domainFlow("roll", phaseRolling, 1)

func domainFlow(name, phase string, limit int) *flow.Flow[packet] {
	return flow.New(name,
		// What a step says in the status goes with the next position that is saved: one write.
		flow.Step("begin", flow.Do(func(_ context.Context, p *packet) error {
			p.SetStatus(func(d *Domain) error { d.Status.Phase = phase; return nil })
			return nil
		})),
		flow.Group("admin-server", serverSteps(func(p *packet) *server { return p.server("admin") })...),
		flow.Fork("managed-servers", func(_ context.Context, f *flow.Fiber[packet]) ([]flow.Child, error) {
			var children []flow.Child
			for i := range f.Packet.Object.Spec.Servers {
				children = append(children, runServer.Child("", f.Packet.server(fmt.Sprintf("managed-%d", i+1))))
			}
			return children, nil
		}, flow.Limit(limit)),
		flow.Step("report", report, flow.To("begin")),
	)
}

// report says in the status that the domain is up. A server that was lost meanwhile is started first.
func report(ctx context.Context, f *flow.Fiber[packet]) flow.Next {
	p := f.Packet
	lost, err := incomplete(p.Client)(ctx, p.Object)
	switch {
	case err != nil:
		return f.Fail(err)
	case lost:
		return f.Goto("begin")
	}
	generation := p.Object.Generation
	p.SetStatus(func(d *Domain) error {
		d.Status.Phase, d.Status.ObservedGeneration = phaseAvailable, generation
		return nil
	})
	return f.Next()
}
