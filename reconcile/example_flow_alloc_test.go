package reconcile_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/alloc"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// addresses maps idempotency keys to addresses.
type addresses map[string]string

func (a addresses) reserve(_ context.Context, key string) (string, error) {
	if a[key] == "" {
		a[key] = fmt.Sprintf("192.0.2.%d", len(a)+1)
	}
	return a[key], nil
}

func (a addresses) release(_ context.Context, key, value string) error {
	fmt.Println("release", value)
	delete(a, key)
	return nil
}

// A step allocates, and its Undo releases. The address is in the status before the next step begins. It stays the same
// after a restart during the step, and is released on deletion before the finalizer is removed.
func ExampleFlow_allocate() {
	server, err := apiserver.New(apiserver.Options{Resources: testbed.Resources()})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	if _, err := server.Put(testbed.New("team-a", "web")); err != nil {
		panic(err)
	}
	cloud := addresses{}

	// The contexts of the steps carry the finalizer. Once and Release take the task's object, which belongs to the fiber,
	// and its client.
	type gatewayTask = reconcile.Task[testbed.Gateway]
	bringUp := flow.New("bring-up",
		flow.Step("address", flow.Do(func(ctx context.Context, t *gatewayTask) error {
			ip, err := alloc.Once(ctx, t.Client, t.Object, "public-ip", cloud.reserve)
			if err != nil {
				return err
			}
			fmt.Println("reserved", ip)
			return nil
		}), flow.Undo(flow.Do(func(ctx context.Context, t *gatewayTask) error {
			return alloc.Release(ctx, t.Client, t.Object, "public-ip", cloud.release)
		}))),
		flow.Step("announce", flow.Do(func(_ context.Context, t *gatewayTask) error {
			fmt.Println("announce", alloc.Values(t.Object)["public-ip"])
			return nil
		})),
	)

	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	ended := make(chan flow.Result, 2)
	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()))
	reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[testbed.Gateway, gatewayTask]{
		Flow:     bringUp,
		Packet:   func(_ context.Context, t *gatewayTask) (*gatewayTask, error) { return t, nil },
		Position: func(gw *testbed.Gateway) **flow.Position { return &gw.Status.Flow },
		OnEnd:    func(_ *testbed.Gateway, r flow.Result) { ended <- r },
	}, reconcile.Finalizer("example.com/gateways"))

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() {
		defer stop()
		fmt.Println((<-ended).Status)
		gw := testbed.Stored(server, reconcile.Key{Namespace: "team-a", Name: "web"})
		fmt.Println("recorded", alloc.Values(gw)["public-ip"])
		if err := rt.Client().Delete(ctx, gw); err != nil {
			fmt.Println(err)
		}
		fmt.Println((<-ended).Status, "and the cloud has", len(cloud))
	}()
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// reserved 192.0.2.1
	// announce 192.0.2.1
	// completed
	// recorded 192.0.2.1
	// release 192.0.2.1
	// completed and the cloud has 0
}
