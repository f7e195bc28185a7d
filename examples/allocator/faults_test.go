package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/simulate"
)

// Whatever fails, at the API server or at the cloud, each Gateway has one address, and the cloud reserves no other one.
func TestFaults(t *testing.T) {
	var books *cloud // of the schedule in progress: a process plays one after the other
	simulate.Test(t, simulate.Subject{
		Start: func(ctx context.Context, cfg *rest.Config) error {
			rt, err := newOperator(cfg, &cloudClient{"http://cloud", simulate.Client(ctx)}, "default")
			if err != nil {
				return err
			}
			return rt.Run(ctx)
		},
		CRDs: "gateways.yaml",
	},
		simulate.External("cloud", func() http.Handler {
			books = newCloud(1, 0)
			return books.handler()
		}),
		simulate.Apply("testdata/gateways.yaml"),
		simulate.Await(func(w simulate.World) error { return balanced(w, books, 2) }),
		simulate.Delete("gateways/west"),
		simulate.Gone("gateways/west"),
		simulate.Await(func(w simulate.World) error { return balanced(w, books, 1) }),
		simulate.Apply("testdata/gateways.yaml"),
		simulate.Await(func(w simulate.World) error { return balanced(w, books, 2) }),
		simulate.Delete("gateways/east"),
		simulate.Gone("gateways/east"),
		simulate.Await(func(w simulate.World) error { return balanced(w, books, 1) }),
		simulate.Schedules(120),
	)
}

// balanced returns nil if there are n gateways with an address, and the cloud reserves these addresses.
func balanced(w simulate.World, books *cloud, n int) error {
	var have []string
	for _, u := range w.Objects("gateways") {
		var g Gateway
		if err := w.Into("gateways/"+u.GetName(), &g); err != nil {
			return err
		}
		if g.Status.Address != "" {
			have = append(have, g.Status.Address)
		}
	}
	slices.Sort(have)
	if reserved := books.reserved(); len(have) != n || !slices.Equal(have, reserved) {
		return fmt.Errorf("the gateways have %v, the cloud has %v", have, reserved)
	}
	return nil
}
