package main

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/flow"
)

const managedLimit = 8 // managed servers of one domain that start concurrently

// bringUp starts the servers of a new domain: the admin server first, then the managed servers concurrently.
var bringUp = domainFlow("bring-up", phaseStarting, managedLimit)

// roll replaces the servers of a running domain one at a time.
var roll = domainFlow("roll", phaseRolling, 1)

func domainFlow(name, phase string, limit int) *flow.Flow[packet] {
	return flow.New(name,
		// A status change of a step is saved together with the next position, in one write.
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

// report writes to the status that the domain is available. If a server was lost in the meantime, report starts it
// first.
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
