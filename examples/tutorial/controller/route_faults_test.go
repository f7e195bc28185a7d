package controller

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/simulate"

	"example.com/sites/api"
	webv1alpha1 "example.com/sites/api/web/v1alpha1"
	"example.com/sites/edge"
	"example.com/sites/edge/edgetest"
)

// Whatever fails, a Route becomes active, and leaves nothing behind. No address is reserved twice.
func TestRouteFaults(t *testing.T) {
	simulate.Test(t, simulate.Subject{Start: simulated, CRDs: "../deploy/crds"},
		simulate.External("edge", newEdge),
		simulate.Apply("../samples/route.yaml"),
		simulate.Await(func(w simulate.World) error {
			var route webv1alpha1.Route
			if err := w.Into("routes.web.example.com/sample", &route); err != nil {
				return err
			}
			if route.Status.URL == "" {
				return errors.New("the Route has no URL")
			}
			return nil
		}),
		simulate.Delete("routes.web.example.com/sample"),
		simulate.Gone("routes.web.example.com/sample"),
		simulate.Schedules(130),
	)
}

// simulated runs the controllers with the edge of the simulation.
func simulated(ctx context.Context, cfg *rest.Config) error {
	scheme, err := api.Scheme()
	if err != nil {
		return err
	}
	rt := fairlead.New(cfg, fairlead.WithScheme(scheme), fairlead.WithFieldOwner(Account.Name))
	declareSite(rt)
	declareRouteAt(rt, &edge.Client{URL: "http://edge", HTTP: simulate.Client(ctx)})
	return rt.Run(ctx)
}

func newEdge() http.Handler { return edgetest.New(30*time.Second, slog.New(slog.DiscardHandler)) }
