package reconcile_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// A flow for each object. Its steps may take any time, a restart resumes it, and deletion undoes it.
func ExampleFlow() {
	server, err := apiserver.New(apiserver.Options{Resources: testbed.Resources()})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	if _, err := server.Put(testbed.New("team-a", "web")); err != nil {
		panic(err)
	}

	// The packet is the object itself. SetStatus writes with the position of the fiber.
	bringUp := flow.New("bring-up",
		flow.Step("reserve", flow.Do(func(_ context.Context, gw *testbed.Gateway) error {
			fmt.Println("reserve an address for", gw.Name)
			return nil
		}), flow.Undo(flow.Do(func(_ context.Context, gw *testbed.Gateway) error {
			fmt.Println("release the address of", gw.Name)
			return nil
		}))),
		flow.Step("propagate", func(_ context.Context, f *flow.Fiber[testbed.Gateway]) flow.Next {
			fmt.Println("wait, without a goroutine")
			return f.Delay(50 * time.Millisecond)
		}),
		flow.Step("report", func(_ context.Context, f *flow.Fiber[testbed.Gateway]) flow.Next {
			task, _ := flow.Use[*reconcile.Task[testbed.Gateway]](f)
			task.SetStatus(func(gw *testbed.Gateway) error { gw.Status.Seen = f.Packet.Generation; return nil })
			return f.Next()
		}),
	)

	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	ended := make(chan flow.Result, 2)
	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()))
	reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[testbed.Gateway, testbed.Gateway]{
		Flow:     bringUp,
		Position: func(gw *testbed.Gateway) **flow.Position { return &gw.Status.Flow },
		OnEnd:    func(_ *testbed.Gateway, r flow.Result) { ended <- r },
	}, reconcile.Finalizer("example.com/gateways"))

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() {
		defer stop()
		fmt.Println((<-ended).Status)
		gw := testbed.Stored(server, reconcile.Key{Namespace: "team-a", Name: "web"})
		fmt.Println("status of generation", gw.Status.Seen, "and position", gw.Status.Flow.Reason)
		if err := rt.Client().Delete(ctx, gw); err != nil {
			fmt.Println(err)
		}
		fmt.Println((<-ended).Status)
	}()
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// reserve an address for web
	// wait, without a goroutine
	// completed
	// status of generation 1 and position completed
	// release the address of web
	// completed
}
