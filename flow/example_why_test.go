package flow_test

import (
	"context"
	"fmt"

	"github.com/fairlead-io/fairlead/flow"
	"github.com/fairlead-io/fairlead/why"
)

// A step that is about to wait gives the cause with Because. Why returns it until the fiber leaves the step.
func ExampleHandle_Why() {
	var freed flow.Signal
	parked := make(chan struct{})
	allocate := flow.New("allocate", flow.Step("address", func(_ context.Context, f *flow.Fiber[string]) flow.Next {
		f.Because(why.Cause{
			Type: why.Parked, Message: "no address is free", Evidence: map[string]string{"pool": *f.Packet},
			Advice: "Enlarge the pool, or delete what needs none any more.",
		})
		close(parked)
		return f.Await(&freed)
	}))
	engine := flow.NewEngine(flow.EngineOptions{})
	defer engine.Close(context.Background())
	pool := "public"
	h, err := allocate.Start(context.Background(), engine, &pool, flow.StartOptions{Key: "prod/shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	<-parked
	for _, c := range h.Why(nil) {
		fmt.Println(c.Type, c.Message, c.Evidence["pool"], "at", c.Evidence["step"])
	}
	freed.Set()
	<-h.Done()
	// Output: Parked no address is free public at allocate/address
}
