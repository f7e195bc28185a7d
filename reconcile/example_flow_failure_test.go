package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead" //nolint:depguard // seen through the front door
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/internal/testbed"
	"github.com/fairlead-io/fairlead/reconcile"
)

// A flow reports its failure in the status, and still fails. Steps repeat by their Retry. After that a detour writes
// the failure into the status and fails with the same error. Another fiber then starts after the back-off of the
// controller. For a terminal error, as here, it starts when the spec changes. A step returns AsTerminal for a failure
// that no repetition helps, and Retry does not repeat that.
func ExampleFlow_failure() {
	server, err := apiserver.New(apiserver.Options{Resources: testbed.Resources()})
	if err != nil {
		panic(err)
	}
	defer server.Close()
	web := testbed.New("team-a", "web")
	web.Spec.Size = 11
	if _, err := server.Put(web); err != nil {
		panic(err)
	}

	type gatewayTask = reconcile.Task[testbed.Gateway]
	say := func(t *gatewayTask, status metav1.ConditionStatus, reason, message string) {
		t.SetStatus(func(gw *testbed.Gateway) error { // written with the position of the fiber
			reconcile.SetCondition(gw, &gw.Status.Conditions, "Ready", status, reason, message)
			return nil
		})
	}
	bringUp := flow.New("bring-up",
		flow.Step("reserve", flow.Do(func(_ context.Context, t *gatewayTask) error {
			fmt.Println("reserve", t.Object.Spec.Size)
			if t.Object.Spec.Size > 10 {
				return reconcile.AsTerminal(errors.New("nobody has that many"))
			}
			return nil
		}), flow.Retry(flow.Backoff{Attempts: 5}), flow.OnError("failed")),
		flow.Step("report", flow.Do(func(_ context.Context, t *gatewayTask) error {
			say(t, metav1.ConditionTrue, "Up", "")
			return nil
		})),
		flow.Detour("failed", func(_ context.Context, f *flow.Fiber[gatewayTask]) flow.Next {
			say(f.Packet, metav1.ConditionFalse, "Failed", f.Err().Error())
			return f.Fail(f.Err())
		}),
	)

	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	ended := make(chan flow.Status, 2)
	rt := fairlead.New(server.Config(), fairlead.WithScheme(testbed.Scheme()))
	reconcile.Flow(rt, "gateways", engine, reconcile.Fibers[testbed.Gateway, gatewayTask]{
		Flow:     bringUp,
		Packet:   func(_ context.Context, t *gatewayTask) (*gatewayTask, error) { return t, nil },
		Position: func(gw *testbed.Gateway) **flow.Position { return &gw.Status.Flow },
		OnEnd:    func(_ *testbed.Gateway, r flow.Result) { ended <- r.Status },
	})

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	go func() {
		defer stop()
		for range 2 {
			status := <-ended
			gw := testbed.Stored(server, reconcile.Key{Namespace: "team-a", Name: "web"})
			for _, c := range gw.Status.Conditions {
				fmt.Println(status, "and the status says:", c.Type, c.Status, c.Message)
			}
			gw.Spec.Size = 2 // the user has read the status
			if err := rt.Client().Update(ctx, gw); err != nil {
				fmt.Println(err)
			}
		}
	}()
	if err := rt.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// reserve 11
	// failed and the status says: Ready False bring-up/reserve: nobody has that many
	// reserve 2
	// completed and the status says: Ready True
}
