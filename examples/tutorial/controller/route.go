package controller

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"time"

	"github.com/fairlead-io/fairlead"
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"

	webv1alpha1 "example.com/sites/api/web/v1alpha1"
	"example.com/sites/edge"
)

// addressSlot names the address of a Route in its status.
const addressSlot = "address"

// declareRoute adds the controller of Routes. EDGE_URL is the URL of the edge.
func declareRoute(rt *fairlead.Runtime) {
	declareRouteAt(rt, &edge.Client{
		URL:  cmp.Or(os.Getenv("EDGE_URL"), "http://127.0.0.1:9000"),
		HTTP: &http.Client{Timeout: 10 * time.Second},
	})
}

func declareRouteAt(rt *fairlead.Runtime, api *edge.Client) {
	type task = reconcile.Task[webv1alpha1.Route] // the object of a fiber, and a client

	publish := flow.New("publish",
		flow.Step("address", flow.Do(func(ctx context.Context, t *task) error {
			_, err := alloc.Once(ctx, t.Client, t.Object, addressSlot, api.Reserve)
			return err
		}), flow.Undo(flow.Do(func(ctx context.Context, t *task) error {
			return alloc.Release(ctx, t.Client, t.Object, addressSlot, api.Release)
		}))),
		flow.Step("route", flow.Do(func(ctx context.Context, t *task) error {
			return api.AddRoute(ctx, t.Object.Spec.Host, alloc.Values(t.Object)[addressSlot])
		}), flow.Undo(flow.Do(func(ctx context.Context, t *task) error {
			return api.RemoveRoute(ctx, t.Object.Spec.Host)
		}))),
		flow.Step("wait-active", func(_ context.Context, f *flow.Fiber[task]) flow.Next {
			host := f.Packet.Object.Spec.Host
			active := func(ctx context.Context) (bool, error) { return api.Active(ctx, host) }
			return f.Await(flow.Func(active, 2*time.Second), flow.Timeout(10*time.Minute))
		}),
		flow.Step("report", flow.Do(func(_ context.Context, t *task) error {
			url := "http://" + t.Object.Spec.Host
			t.SetStatus(func(route *webv1alpha1.Route) error { route.Status.URL = url; return nil })
			return nil
		})),
	)

	reconcile.Flow(rt, "routes", rt.Engine(), reconcile.Fibers[webv1alpha1.Route, task]{
		Flow:     publish,
		Packet:   func(_ context.Context, t *task) (*task, error) { return t, nil },
		Position: func(route *webv1alpha1.Route) **flow.Position { return &route.Status.Flow },
	}, reconcile.Finalizer("web.example.com/routes"))
}
