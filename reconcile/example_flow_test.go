package reconcile_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/fairleadtest/testbed"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/reconcile"
)

// Each gateway is brought up by a fiber. It waits for its address without a worker and without a goroutine, and a restart of
// the program would have it go on at the step where it is.
func ExampleFlow() {
	server, err := apiserver.New(apiserver.Options{Resources: testbed.Resources()})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	if _, err := server.Put(testbed.New("team-a", "web")); err != nil {
		panic(err)
	}

	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()))
	engine := flow.NewEngine(flow.EngineOptions{})
	rt.Flows(engine) // shows it at /debug/flows, and closes it at the end

	var addressed flow.Signal // what somebody outside says; a condition of an object is client.When
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	bringUp := flow.New("bring-up",
		flow.Step("ask", func(_ context.Context, f *flow.Fiber[testbed.Gateway]) flow.Next {
			fmt.Println("asking for an address for", f.Packet.Name)
			time.AfterFunc(10*time.Millisecond, addressed.Set)
			return f.Next()
		}),
		flow.Step("wait", func(_ context.Context, f *flow.Fiber[testbed.Gateway]) flow.Next {
			return f.Await(&addressed, flow.Timeout(time.Minute))
		}),
		flow.Step("report", func(_ context.Context, f *flow.Fiber[testbed.Gateway]) flow.Next {
			task, _ := flow.Use[*reconcile.Task[testbed.Gateway]](f)
			task.SetStatus(func(g *testbed.Gateway) error { // written with the position: one patch
				g.Status.Seen = g.Generation
				return nil
			})
			return f.Next()
		}),
	)
	reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[testbed.Gateway, testbed.Gateway]{
		Flow:     bringUp,
		Position: func(g *testbed.Gateway) **flow.Position { return &g.Status.Flow },
		OnEnd: func(_ *testbed.Gateway, r flow.Result) {
			for _, t := range r.Handle.Info().Trail {
				fmt.Println(t)
			}
			stop()
		},
	})
	fmt.Println(rt.Run(ctx))
	stored := testbed.Stored(server, client.Key{Namespace: "team-a", Name: "web"}).Status
	fmt.Println("seen", stored.Seen, stored.Flow.Reason)
	// Output:
	// asking for an address for web
	// ask:next
	// wait:await
	// report:next
	// <nil>
	// seen 1 completed
}
